"""The record of nodes from the database, and the nodes that jobs are submitted without."""
