"""Clean-up of run folders, checkpoints, code snapshots and rows that nothing needs."""
