"""Measurements, studies and baselines."""
