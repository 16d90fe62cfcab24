"""Submit the job of a spec exactly once, to Slurm or to this machine."""
