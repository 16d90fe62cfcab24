"""Schedules: planned times of a cron expression in a time zone, and what happens to each."""
