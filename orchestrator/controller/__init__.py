"""The verbs as a Python API, one a file, over unit_of_work."""
