"""The store: tables, sessions, queries and migrations.

Of orchestrator it imports only records and errors.
"""
