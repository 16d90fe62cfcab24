"""Records as rows with plain values: what the command line, the web pages and JSON show."""
