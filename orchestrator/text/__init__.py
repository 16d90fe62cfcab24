"""Escape untrusted text, write it as CSV and JSON, and match it with expressions of users."""
