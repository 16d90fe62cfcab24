"""Metrics read from logs and metrics files."""
