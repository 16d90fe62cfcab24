"""Metrics for Prometheus: facts from the database, and the file that each pass writes."""
