"""The only place where database, Slurm and files meet; a folder per subject."""
