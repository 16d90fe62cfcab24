"""The record of nodes: which of them jobs failed on or ran slowly on, and which to avoid. Pure."""

from orchestrator.nodes.records import End, Node, Repeat, Straggler
from orchestrator.nodes.scores import NODE_CAUSES, POSSIBLE_CAUSES, assess
from orchestrator.nodes.selection import select
