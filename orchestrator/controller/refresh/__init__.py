"""Update stored job states from Slurm."""
