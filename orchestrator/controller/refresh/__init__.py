"""What Slurm says of our jobs, compared with the database."""
