"""Where in a log the lines of one attempt stand."""

from __future__ import annotations

import re
from typing import NamedTuple

from orchestrator.logs import lines, searching


class Span(NamedTuple):
    """A part of a log, in whole lines."""

    begin_bytes: int
    #: none: up to its end, which may still grow
    end_bytes: int | None
    #: lines before it
    before_lines: int


def attempt_span(path: str, banner: re.Pattern[str], attempt: int) -> Span | None:
    """Return the attempt's lines, from its banner to the next one; none where it has no banner.

    As for the metrics, attempts only go up: a job that prints its own old log begins none.
    """
    highest = -1
    found: tuple[int, int] | None = None
    expression = re.compile(rb"^" + re.escape(lines.BANNER_START.encode()), re.MULTILINE)
    for hit in searching.search(path, expression):
        told = banner.fullmatch(lines.clean(hit.text))
        if told is None or int(told["attempt"]) <= highest:
            continue
        if found is not None:
            return Span(found[0], hit.offset_bytes, found[1])
        highest = int(told["attempt"])
        if highest == attempt:
            found = (hit.offset_bytes, hit.number - 1)
    return None if found is None else Span(found[0], None, found[1])
