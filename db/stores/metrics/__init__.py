"""Metric values, and how far the files that contain them have been read."""
