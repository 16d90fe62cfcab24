"""From a spec to one job in Slurm or on this machine."""
