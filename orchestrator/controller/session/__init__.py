"""The configuration, the database and the clock that every command works with."""
