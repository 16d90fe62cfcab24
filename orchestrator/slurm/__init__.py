"""Slurm's commands: one module per command builds its arguments and parses its output.

`process` runs a command and `client.Client` combines the three. The parsers are tested with output
recorded on Slurm 22.05.8, 24.11.5 and 26.05.5 (tests/unit/slurm/recorded).
"""
