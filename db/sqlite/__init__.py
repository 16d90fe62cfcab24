"""The database as an SQLite file."""
