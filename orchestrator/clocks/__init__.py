"""Leaps of the host's clock, and deadlines on one that nobody sets."""
