"""Programs that this one runs: commands of Slurm, git, crontab, commands of notices."""
