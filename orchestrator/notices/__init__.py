"""Notifications: their texts, the formats of receivers, and the masking of secrets. Pure."""
