"""Slurm's host lists, such as "gpu[01-03,07],login1"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

#: A part of a list. Commas inside brackets do not separate parts.
_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
#: Protects against garbage: no job has more nodes.
_MAX_HOSTS = 100_000


def expand(node_list: str) -> list[str]:
    """Return the hosts of a list, as `scontrol show hostnames`; numbers keep leading zeros."""
    hosts: list[str] = []
    for part in _PART.findall(node_list):
        hosts += itertools.islice(_hosts(part), _MAX_HOSTS)
    return hosts


def _hosts(part: str) -> Iterator[str]:
    brackets = _BRACKETS.search(part)
    if brackets is None:
        yield part
        return
    for number in _numbers(brackets[1]):
        yield from _hosts(part[: brackets.start()] + number + part[brackets.end() :])


def _numbers(text: str) -> Iterator[str]:
    for item in text.split(","):
        first, _, last = item.partition("-")
        if first.isdecimal() and last.isdecimal():
            for number in range(int(first), int(last) + 1):
                yield str(number).zfill(len(first))
        else:
            yield item
