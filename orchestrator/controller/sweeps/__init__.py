"""Sweeps: planned, submitted, resumed and queried."""
