"""Fabrics: variables, binds and libraries that NCCL, RCCL and gloo need for a network. Pure."""

from orchestrator.fabrics.files import host_path, is_path, load, names, variable_and_rest
from orchestrator.fabrics.records import Containers, Fabric, Line, Network
