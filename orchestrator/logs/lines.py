"""Bytes of a log -> lines and their text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.text import escaping

#: Bytes of a line that are kept; the rest of a longer one is passed over.
LINE_CAP_BYTES = 16 * 1024
BANNER_START = "=== orchestrator "

# A segment of a line, or the end of a line. Carriage return and NUL end a segment and not a line.
_TOKEN = re.compile(rb"([^\r\n\0]+)|\n")
_SEGMENT_END = re.compile(rb"[\r\n\0]")
# ECMA-48: control sequences, then control strings, then the short escapes.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)


class Segment(NamedTuple):
    """Raw bytes of a line, or of the part of one between two carriage returns."""

    #: line number, from 1
    number: int
    #: where it begins in the file
    offset_bytes: int
    raw: bytes
    #: what a search found in its line; none: it was not searched
    marks: tuple[int, ...] | None = None


class Split(NamedTuple):
    """What `split` made of a block."""

    segments: list[Segment]
    #: bytes done with; what follows is the beginning of an unfinished line
    consumed_bytes: int
    #: line ends passed, in the file
    line: int
    #: the block ends inside a line whose rest is to be passed over
    skipping: bool
    #: bytes that were passed over
    skipped_bytes: int


def split(
    data: bytes,
    *,
    offset_bytes: int = 0,
    line: int = 0,
    skipping: bool = False,
    flush: bool = False,
    line_cap_bytes: int = LINE_CAP_BYTES,
) -> Split:
    """Cut a block into segments; the same bytes give the same segments, however they come in.

    Carriage returns and NUL runs part segments: the pieces left and right of a hole that a file
    system filled with NUL do not belong together, and joined they could show a number that nobody
    printed. `flush` gives out the unfinished line too.
    """
    segments: list[Segment] = []
    begin = skipped = 0
    if skipping:
        end = _SEGMENT_END.search(data)
        begin = skipped = end.start() if end else len(data)
        skipping = end is None
    for token in _TOKEN.finditer(data, begin):
        if token.lastindex is None:
            line += 1
            continue
        start, stop = token.span()
        long = stop - start > line_cap_bytes
        if stop == len(data) and not long and not flush:
            return Split(segments, start, line, False, skipped)
        keep = min(stop, start + line_cap_bytes)
        segments.append(Segment(line + 1, offset_bytes + start, data[start:keep]))
        skipped += stop - keep
        skipping = stop == len(data)
    return Split(segments, len(data), line, skipping, skipped)


def around(
    data: bytes,
    places: Iterable[tuple[int, int]],
    *,
    whole: int,
    offset_bytes: int = 0,
    line: int = 0,
    line_cap_bytes: int = LINE_CAP_BYTES,
) -> tuple[list[Segment], int]:
    """Return the segments of the lines in which places lie, and the line ends up to `whole`.

    `data` begins with a line and the byte before `whole` is a line end. A place is the byte behind
    what was found and its mark; places are in order. The segments are those that `split` gives for
    these lines; the others are counted and not looked at.
    """
    found: list[Segment] = []
    counted = stop = 0
    start = -1
    marks: list[int] = []
    for end, mark in places:
        if start >= 0 and end <= stop:
            if mark not in marks:
                marks.append(mark)
            continue
        if start >= 0:
            _add(found, data, start, stop, offset_bytes, line, marks, line_cap_bytes)
            start = -1
        if end > whole:
            break
        start = max(data.rfind(b"\n", stop, end - 1) + 1, stop)
        line += data.count(b"\n", counted, start)
        counted = start
        stop = data.find(b"\n", end - 1) + 1
        marks = [mark]
    if start >= 0:
        _add(found, data, start, stop, offset_bytes, line, marks, line_cap_bytes)
    return found, line + data.count(b"\n", counted, whole)


def _add(
    found: list[Segment],
    data: bytes,
    start: int,
    stop: int,
    offset_bytes: int,
    line: int,
    marks: list[int],
    line_cap_bytes: int,
) -> None:
    raw, known = data[start : stop - 1], tuple(marks)
    if b"\r" not in raw and b"\0" not in raw and 0 < len(raw) <= line_cap_bytes:
        found.append(Segment(line + 1, offset_bytes + start, raw, known))
        return
    part = split(
        data[start:stop],
        offset_bytes=offset_bytes + start,
        line=line,
        line_cap_bytes=line_cap_bytes,
    )
    found += [segment._replace(marks=known) for segment in part.segments]


def banner_pattern(*, job_id: str, task: int, name: str | None = None) -> re.Pattern[str]:
    """Return what the banner of this job looks like; other jobs' banners are plain text.

    `name`, with or without the token behind it, is for logs in which the job ID is not enough.
    """
    named = r"\S+" if name is None else rf"{re.escape(name)}(?:\.[a-z0-9]{{12}})?"
    return re.compile(
        rf"{BANNER_START}{named} job {re.escape(job_id)} task {task} "
        r"attempt (?P<attempt>[0-9]{1,6}) on \S+ at \S+ ===[ ]*"
    )


def clean(raw: bytes) -> str:
    """Return text for matching: U+FFFD for invalid UTF-8, no escape sequences."""
    text = raw.decode(errors="replace")
    return _ANSI.sub("", text) if "\x1b" in text else text


def safe(text: str) -> str:
    r"""Return text that can't do anything to a terminal.

    Escape sequences and NUL are left out, other characters that act on it shown as `\x07`. What a
    sequence left out brings together is shown too. A carriage return stays: it moves within its
    own line only, and progress bars need it.
    """
    left = _ANSI.sub("", text).replace("\0", "")
    return "\r".join(map(escaping.lines, left.split("\r")))
