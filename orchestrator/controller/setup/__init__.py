"""doctor, config init, and restoring a database."""
