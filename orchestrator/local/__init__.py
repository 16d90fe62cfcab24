"""This machine as a cluster of one node, for where there is no Slurm (docs/design.md).

Imports nothing outside the standard library, for each job's own process loads it.
"""

import typing

from orchestrator import lazily

if typing.TYPE_CHECKING:
    from orchestrator.local.fitting import dependencies, ignored, refuse_too_big, refuse_unfit
    from orchestrator.local.machine import Machine
    from orchestrator.local.slots import Slots, find
    from orchestrator.local.spool import Request

__all__ = [
    "Machine",
    "Request",
    "Slots",
    "dependencies",
    "find",
    "ignored",
    "refuse_too_big",
    "refuse_unfit",
]

__getattr__ = lazily.names_of(
    __name__,
    {
        "fitting": ("dependencies", "ignored", "refuse_too_big", "refuse_unfit"),
        "machine": ("Machine",),
        "slots": ("Slots", "find"),
        "spool": ("Request",),
    },
)
