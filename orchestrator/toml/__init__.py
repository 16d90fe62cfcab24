"""TOML: documents with the line of each key, and checks of their keys and values."""
