"""Graphs: jobs and sweeps that wait for each other. Pure."""

from orchestrator.graphs.parsing import build
from orchestrator.graphs.records import Node, StoredGraph, StoredNode
