"""Schedules: managed, triggered and checked for regressions."""
