"""This machine as a cluster of one node, for use without Slurm (docs/design.md).

Imports only the standard library: the keeper and the runner of each job load it.
"""
