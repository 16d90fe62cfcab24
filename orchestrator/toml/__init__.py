"""TOML: documents with the place of each key, their shapes, limits, and Slurm's value forms."""
