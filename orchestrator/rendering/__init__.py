"""Job scripts: rendered from a spec and the templates, or around a batch file of the user."""
