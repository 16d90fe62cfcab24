"""Splits off what launchers and loggers print before a line: rank, time, level, name."""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple


class Prefix(NamedTuple):
    """The beginning of a line that is not the program's own text."""

    #: the line without it
    rest: str
    #: identifies the rank that printed the line; "": unknown
    label: str
    #: global rank, if the prefix contains it
    rank: int | None
    #: None: no time, or a time without a zone
    time: datetime.datetime | None


_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|Info|info)"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}"
#: epoch-3, step7
_NO_METRIC = r"(?!(?i:epoch|ep|step|iter|batch|loss|acc|top|prec|map|f)[0-9_-])"
# Each alternative is one part of a prefix. Those that identify the rank come first: torchrun --tee,
# mpirun (Open MPI) --tag-output, Ray, pdsh. The last one is of R. _TASK is srun --label.
_PART = re.compile(
    rf"""
    \[rank(?P<rank>[0-9]{{1,6}})\]:?[ ]?
    | \[(?:[0-9]+,)?(?P<mpi>[0-9]{{1,6}})\]<std(?:out|err)>:[ ]?
    | (?P<local>\[[a-z_]+[0-9]{{1,4}}\]):[ ]?
    | \[Rank[ ](?P<named>[0-9]{{1,6}})\][ ]
    | (?P<actor>\([A-Za-z_][\w.]*(?:\([^()]*\))?[ ]pid=[0-9]+(?:,[ ]ip=[0-9.]+)?\))[ ]
    | {_NO_METRIC}(?P<host>[A-Za-z][A-Za-z0-9.-]*[0-9]):[ ]++
    | DLL[ ]
    | \#[\#>][ ]+(?=\[1\]|Chain[ ][0-9]+:)
    | Chain[ ][0-9]+:[ ]
    | LOG[ ]\((?>(?:[^()]|\(\))*)\)[ ]
    | \[NeMo[ ][A-Z][ ][0-9-]{{10}}[ ]{_CLOCK}[ ]\w+:[0-9]+\][ ]
    | \[[0-9-]{{10}}[ ]{_CLOCK}(?:[.,][0-9]{{1,9}})?[ ][\w.-]+\](?:\([^()]{{1,80}}\))?:?[ ]
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
    | {_LEVEL}:{_NO_METRIC}(?=[\w.-]*[A-Za-z_])\w[\w.-]*:[ ]?
    | {_LEVEL}(?:[ ]*+[-:|>]++[ ]*+|[ ]++)
    | [A-Za-z_][\w.]*[ ]*+[-:|>]*+[ ]*+(?={_LEVEL}[ ]*+[-:|>\]])
    | \[[\w./-]+\.py(?::[0-9]+)?(?::\w+)?\][ ]
    | \[[A-Za-z_][\w.]*\](?=\[{_LEVEL}\])
    | (?:>>|wandb:)[ ]++
    | \[1\][ ]"(?=\[[0-9]+\])
    """,
    re.ASCII | re.VERBOSE,
)
_TASK = re.compile(r"[ ]*(?P<task>[0-9]{1,6}): ?", re.ASCII)
_ZONE = re.compile(r"(?:Z|UTC|[-+][0-9]{2}:?[0-9]{2})$", re.ASCII)
_MAX_PARTS = 12


def split(text: str) -> Prefix:
    """Split a line into its prefix and the rest, which may be the whole line."""
    position, label = 0, ""
    rank: int | None = None
    is_local = False
    time: datetime.datetime | None = None
    match = _TASK.match(text)
    if match is not None:
        position, label = match.end(), match["task"]
        rank = int(label)
    elif text.lstrip(" ").startswith("[") and _PART.match(text, text.index("[")):
        position = text.index("[")
    for _ in range(_MAX_PARTS):
        match = _PART.match(text, position)
        if match is None:
            break
        position = match.end()
        # Each alternative has at most one group.
        group = match.lastgroup
        if group == "time":
            time = time or _aware(match[group])
        elif group is not None:
            label = f"{label}/{match[group]}"
            if group in ("rank", "mpi", "named"):
                # The program's own rank: srun --label then numbers nodes.
                rank = int(match[group])
            # A local rank, such as [default0], is the same on several nodes.
            is_local = is_local or group == "local"
    return Prefix(text[position:], label, None if is_local else rank, time)


def _aware(text: str) -> datetime.datetime | None:
    if not _ZONE.search(text):
        return None
    iso = text.replace("/", "-").replace("_", "T").replace(",", ".").replace("UTC", "Z")
    try:
        time = datetime.datetime.fromisoformat(iso.replace(" Z", "Z"))
        return time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        # Year 0, or a time that leaves the calendar in UTC.
        return None
