"""Leaps of the host's clock, and deadlines on a monotonic clock."""
