"""The commands doctor and config init, and restoring a database."""
