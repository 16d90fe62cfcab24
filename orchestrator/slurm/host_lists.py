"""Slurm's lists of hosts, "gpu[01-03,07],login1", one by one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

#: Each part of a list, whose commas may stand within brackets.
_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
#: What is longer was not written by Slurm for a job of ours.
_MOST = 100_000


def expand(node_list: str) -> list[str]:
    """Return the hosts of a node list; numbers keep their leading zeros (man scontrol, hostnames).

    A text that is no such list stands for itself.
    """
    hosts: list[str] = []
    for part in _PART.findall(node_list):
        hosts += itertools.islice(_hosts(part), _MOST)
    return hosts


def _hosts(part: str) -> Iterator[str]:
    found = _BRACKETS.search(part)
    if found is None:
        yield part
        return
    for number in _numbers(found[1]):
        yield from _hosts(part[: found.start()] + number + part[found.end() :])


def _numbers(text: str) -> Iterator[str]:
    for one in text.split(","):
        first, dash, last = one.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            yield one
            continue
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
