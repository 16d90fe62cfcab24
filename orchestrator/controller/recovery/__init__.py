"""Retries and continuation jobs."""
