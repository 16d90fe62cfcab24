"""This machine as a cluster of one node, for where there is no Slurm (docs/design.md).

Imports nothing outside the standard library, for each job's own process loads it.
"""

import typing

from orchestrator import lazily

if typing.TYPE_CHECKING:
    from orchestrator.local.binding import Submitted
    from orchestrator.local.fitting import dependencies, ignored, refuse_too_big, refuse_unfit
    from orchestrator.local.machine import Keeping, Machine
    from orchestrator.local.slots import Slots, find
    from orchestrator.local.spool import Request

__all__ = [
    "Keeping",
    "Machine",
    "Request",
    "Slots",
    "Submitted",
    "dependencies",
    "find",
    "ignored",
    "refuse_too_big",
    "refuse_unfit",
]

__getattr__ = lazily.names_of(
    __name__,
    {
        "binding": ("Submitted",),
        "fitting": ("dependencies", "ignored", "refuse_too_big", "refuse_unfit"),
        "machine": ("Keeping", "Machine"),
        "slots": ("Slots", "find"),
        "spool": ("Request",),
    },
)
