"""What the entries of a run folder are, for `usage --disk`."""

from __future__ import annotations

import re

KINDS = ("log", "checkpoints", "code", "metrics", "torchrun", "other")
_LOG = re.compile(r".+\.(?:out|err|log)(?:\.\d+)?", re.DOTALL)
_PREFIXES = {
    "checkpoints": "checkpoints",
    "code": "code",
    "metrics": "metrics",
    "torchrun": "torchrun",
    "error": "torchrun",
}


def kind_of_file(name: str) -> str:
    """Return the kind of an entry of a run folder; docs/design.md lists the entries."""
    if _LOG.fullmatch(name):
        return "log"
    return _PREFIXES.get(name.partition(".")[0], "other")
