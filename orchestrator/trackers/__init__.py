"""Experiment trackers: run IDs, links to runs, and runs exported from stored metrics. Pure."""
