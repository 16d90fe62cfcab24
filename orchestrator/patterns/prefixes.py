"""What launchers and loggers put before a program's own text: ranks, times, levels, names."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple


class Prefix(NamedTuple):
    """The beginning of a line that is not the program's own text."""

    #: the line without it
    rest: str
    #: tells whose line it is among those of other ranks; "": nobody says
    label: str
    #: none: the line does not tell, or tells a node's or local one
    rank: int | None
    #: none: no time, or one without a zone, which could be any
    time: datetime.datetime | None


_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|Info|info)"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
# Each alternative is one part, and ends where the next may begin. Those that tell whose line it
# is come first; mpirun (Open MPI) --tag-output, srun --label, torchrun --tee, Ray, pdsh.
_PART = re.compile(
    rf"""
    \[rank(?P<rank>[0-9]{{1,6}})\]:?[ ]?
    | \[(?:[0-9]+,)?(?P<mpi>[0-9]{{1,6}})\]<std(?:out|err)>:[ ]?
    | (?P<local>\[[a-z_]+[0-9]{{1,4}}\]):[ ]?
    | \[Rank[ ](?P<named>[0-9]{{1,6}})\][ ]
    | (?P<actor>\([A-Za-z_][\w.]*(?:\([^()]*\))?[ ]pid=[0-9]+(?:,[ ]ip=[0-9.]+)?\))[ ]
    | (?P<host>[A-Za-z][A-Za-z0-9.-]*[0-9]):[ ]++
    | DLL[ ]
    | \[NeMo[ ][A-Z][ ][0-9-]{{10}}[ ]{_CLOCK}[ ]\w+:[0-9]+\][ ]
    | \[[0-9-]{{10}}[ ]{_CLOCK}[ ][\w.-]+\](?:\([^()]{{1,80}}\))?:?[ ]
    | \[?(?P<time>[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}[ T_,]{_CLOCK}(?:[.,][0-9]{{1,9}})?
        (?:[ ]?(?:Z|UTC|[-+][0-9]{{2}}:?[0-9]{{2}}))?)\]?[ ]*+(?:[-|:>]++[ ]++)?
    | \[?(?:[0-9]{{2}}/[0-9]{{2}}[ ])?{_CLOCK}(?:[.,][0-9]{{1,9}})?
        (?:[ ][A-Za-z_][\w.]*)?\]?:?[ ]++(?:[-|>]++[ ]++)?
    | \[[0-9]+d[0-9]+h[0-9]+m[0-9]+s\]
    | [IWEF][0-9]{{4,8}}[ ]{_CLOCK}\.[0-9]+[ ]++[0-9]+[ ][^ :\]]+:[0-9]+\][ ]
    | \[{_LEVEL}\|[^ \]|]+:[0-9]+\][ ]
    | \[[A-Za-z_]+\][ ](?=\[?[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T])
    | \[[A-Z]+\](?=\[{_LEVEL}\])
    | \[{_LEVEL}\][ ]*+(?:[-:|>]++[ ]++)?
    | {_LEVEL}:[A-Za-z_][\w.]*:[ ]?
    | {_LEVEL}(?:[ ]*+[-:|>]++[ ]*+|[ ]++)
    | [A-Za-z_][\w.]*[ ]*+[-:|>]*+[ ]*+(?={_LEVEL}[ ]*+[-:|>\]])
    | \[[\w./-]+\.py(?::[0-9]+)?(?::\w+)?\][ ]
    | \[[A-Za-z_][\w.]*\](?=\[{_LEVEL}\])
    | >>[ ]++
    """,
    re.ASCII | re.VERBOSE,
)
_TASK = re.compile(r"[ ]*(?P<task>[0-9]{1,6}): ?", re.ASCII)
_ZONE = re.compile(r"(?:Z|UTC|[-+][0-9]{2}:?[0-9]{2})$", re.ASCII)
_MOST_PARTS = 12


def split(text: str) -> Prefix:
    """Return the line parted from its prefix; without one the line is as it was."""
    place, label = 0, ""
    ranks: set[int] = set()
    ambiguous = False
    time: datetime.datetime | None = None
    found = _TASK.match(text)
    if found is not None:
        place, label = found.end(), found["task"]
        ranks.add(int(found["task"]))
    elif text.lstrip(" ").startswith("[") and _PART.match(text, text.index("[")):
        place = text.index("[")
    for _ in range(_MOST_PARTS):
        found = _PART.match(text, place)
        if found is None:
            break
        place = found.end()
        if found.lastindex is None:
            continue
        for group in ("rank", "mpi", "named"):
            if found[group] is not None:
                label = f"{label}/{found[group]}"
                # PyTorch's own word: what srun numbered are then the nodes.
                ranks = {int(found[group])}
        for group in ("local", "actor", "host"):
            if found[group] is not None:
                label = f"{label}/{found[group]}"
                ambiguous = ambiguous or group == "local"
        if found["time"] is not None and time is None:
            time = _aware(found["time"])
    rank = ranks.pop() if len(ranks) == 1 and not ambiguous else None
    return Prefix(text[place:], label, rank, time)


def _aware(text: str) -> datetime.datetime | None:
    if not _ZONE.search(text):
        return None
    written = text.replace("/", "-").replace("_", "T").replace(",", ".").replace("UTC", "Z")
    try:
        found = datetime.datetime.fromisoformat(written.replace(" Z", "Z"))
        return found.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        # A year 0, or one that leaves the calendar in UTC.
        return None
