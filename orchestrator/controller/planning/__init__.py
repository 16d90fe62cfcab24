"""Plans: what commands would do is shown and stored, and `apply` does exactly this, once."""
