"""Notices: new events, alerts of running jobs, and sending."""
