"""Usage and efficiency of jobs."""
