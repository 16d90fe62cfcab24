"""What launchers put before each line of a rank, taken off. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

# The forms, in the order in which they are stacked:
#   "3: "            srun --label (the task; a rank where each task is one)
#   "[default3]:"    torchrun --tee (the local rank)
#   "[1,3]<stderr>:" mpirun --tag-output (job, rank)
#   "[rank3]:"       PyTorch itself from 2.2 on, in its warnings and tracebacks (the rank)
_PREFIX = re.compile(
    r"\s*(?:"
    r"(?P<task>\d{1,6}): ?"
    r"|\[(?:default|worker|trainer)_?(?P<local>\d{1,6})\]: ?"
    r"|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err|diag)>: ?"
    r"|\[rank(?P<rank>\d{1,6})\]:(?: |(?=\S)|$)"
    r")"
)
#: A time of its own that a log collector puts before the launcher's prefix.
_CLOCK = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,Z+:]{0,16}\]?[ |]{1,3}(?=\[)")
#: "[PG ID 0 PG GUID 0(default_pg) Rank 3]", "[Rank 3]": ProcessGroupNCCL.cpp
_INSIDE = re.compile(r"\[(?:PG [^\]]{0,80} )?Rank (\d{1,6})\]")
_LONGEST = 3


class Stripped(NamedTuple):
    """A line without what its launcher put before it."""

    text: str
    #: names the process that printed it; "": nothing tells
    stream: str
    #: global where PyTorch or MPI said it, else the task's or the local one; none: nothing tells
    rank: int | None


def strip(line: str) -> Stripped:
    """Return the line, its stream and its rank; indentation of the line itself stays."""
    if ":" not in line[:48]:
        return Stripped(line, "", None)
    clock = _CLOCK.match(line)
    begin = 0 if clock is None else clock.end()
    rank: int | None = None
    for _ in range(_LONGEST):
        found = _PREFIX.match(line, begin)
        if found is None:
            break
        begin = found.end()
        rank = int(next(number for number in found.groups() if number is not None))
    if rank is None:
        return Stripped(line, "", None)
    return Stripped(line[begin:], line[clock.end() if clock else 0 : begin].strip(), rank)


def rank_inside(text: str) -> int | None:
    """Return the rank that PyTorch names within a message."""
    found = _INSIDE.search(text)
    return int(found[1]) if found else None
