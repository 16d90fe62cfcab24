"""Code snapshots: calls of git on our own store, checks of files, paths of imports. Pure."""
