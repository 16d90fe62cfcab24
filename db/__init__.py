"""The store: tables, sessions, queries and migrations. It imports nothing of orchestrator."""
