"""What jobs used."""
