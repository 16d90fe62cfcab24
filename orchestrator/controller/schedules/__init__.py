"""Manage schedules, start their jobs at the planned times, and check for regressions."""
