"""Plan, submit, resume and query sweeps."""
