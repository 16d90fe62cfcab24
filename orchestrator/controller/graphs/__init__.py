"""Graphs of jobs and sweeps, and jobs that depend on others."""
