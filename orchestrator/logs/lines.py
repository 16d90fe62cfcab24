"""Splits the bytes of a log into lines, and decodes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.text import escaping

#: The rest of a longer line is skipped.
LINE_CAP_BYTES = 16 * 1024
BANNER_START = "=== orchestrator "

# A segment of a line, or a line end. Carriage return and NUL end a segment.
_TOKEN = re.compile(rb"([^\r\n\0]+)|\n")
_SEGMENT_END = re.compile(rb"[\r\n\0]")
# ECMA-48: control sequences, then control strings, then the short escapes.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)


class Segment(NamedTuple):
    """A line, or the part of one between carriage returns or NUL."""

    #: line number, from 1
    number: int
    #: of its first byte in the file
    offset_bytes: int
    raw: bytes


class Split(NamedTuple):
    """The result of split()."""

    segments: list[Segment]
    #: the rest of the block is the beginning of an unfinished line
    consumed_bytes: int
    #: line ends so far in the file
    line: int
    #: the block ends in a line whose rest is to be skipped
    skipping: bool


def split(
    data: bytes,
    *,
    offset_bytes: int = 0,
    line: int = 0,
    skipping: bool = False,
    flush: bool = False,
    line_cap_bytes: int = LINE_CAP_BYTES,
) -> Split:
    """Split a block into segments. The result does not depend on where blocks begin and end.

    flush: return the unfinished last line, too.
    """
    # NUL separates segments because a file system may return it for data that another host has
    # not written yet: the parts left and right of it do not belong together.
    segments: list[Segment] = []
    begin = 0
    if skipping:
        end = _SEGMENT_END.search(data)
        begin = end.start() if end else len(data)
        skipping = end is None
    for token in _TOKEN.finditer(data, begin):
        if token.lastindex is None:
            line += 1
            continue
        start, stop = token.span()
        is_long = stop - start > line_cap_bytes
        if stop == len(data) and not is_long and not flush:
            return Split(segments, start, line, False)
        keep = min(stop, start + line_cap_bytes)
        segments.append(Segment(line + 1, offset_bytes + start, data[start:keep]))
        skipping = stop == len(data)
    return Split(segments, len(data), line, skipping)


def split_at(
    data: bytes, ends: Iterable[int], *, offset_bytes: int, line: int, line_cap_bytes: int
) -> Split:
    """Split only the lines that contain these positions; the other lines are counted.

    Args:
        data: whole lines.
        ends: positions behind a byte of the line, in order. Those behind `data` are ignored.
    """
    ranges: list[list[int]] = []
    stop = 0
    for end in ends:
        if end <= stop:
            continue
        if end > len(data):
            break
        start = max(data.rfind(b"\n", stop, end - 1) + 1, stop)
        stop = data.index(b"\n", end - 1) + 1
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = stop
        else:
            ranges.append([start, stop])
    segments: list[Segment] = []
    counted = 0
    for start, stop in ranges:
        line += data.count(b"\n", counted, start)
        part = split(
            data[start:stop],
            offset_bytes=offset_bytes + start,
            line=line,
            line_cap_bytes=line_cap_bytes,
        )
        segments += part.segments
        line, counted = part.line, stop
    return Split(segments, len(data), line + data.count(b"\n", counted), False)


def banner_pattern(*, job_id: str, task: int, name: str | None = None) -> re.Pattern[str]:
    """Return the pattern of this job's banners; the banners of other jobs are plain text.

    name: with or without the token behind it.
    """
    name_pattern = r"\S+" if name is None else rf"{re.escape(name)}(?:\.[a-z0-9]{{12}})?"
    return re.compile(
        rf"{BANNER_START}{name_pattern} job {re.escape(job_id)} task {task} "
        r"attempt (?P<attempt>[0-9]{1,6}) on \S+ at \S+ ===[ ]*"
    )


def clean(raw: bytes) -> str:
    """Decode text for matching: U+FFFD for invalid UTF-8, no escape sequences."""
    text = raw.decode(errors="replace")
    return _ANSI.sub("", text) if "\x1b" in text else text


def safe(text: str) -> str:
    r"""Make text safe for a terminal: without escape sequences, other control characters as `\x07`.

    Carriage returns stay: they act within their line only, and progress bars need them.
    """
    plain = _ANSI.sub("", text).replace("\0", "")
    return "\r".join(map(escaping.lines, plain.split("\r")))
