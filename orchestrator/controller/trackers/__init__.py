"""Exports of runs to trackers, and their synchronization."""
