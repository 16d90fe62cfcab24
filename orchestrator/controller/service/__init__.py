"""The controller: one pass, its lease and its health."""
