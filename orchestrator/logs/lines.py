"""Splits the bytes of a log into lines, and decodes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from orchestrator import jobs
from orchestrator.text import escaping

#: The rest of a longer line is skipped.
LINE_CAP_BYTES = 16 * 1024
BANNER_START = "=== orchestrator "

# A segment of a line, or a line end. Carriage return and NUL end a segment.
_TOKEN = re.compile(rb"([^\r\n\0]+)|\n")
SEGMENT_ENDS = (b"\r", b"\n", b"\0")
_SEGMENT_END = re.compile(rb"[\r\n\0]")
# ECMA-48: control sequences, then control strings, then the short escapes.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[PX^_\]][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
)


class Split(NamedTuple):
    #: line number from 1 and text of each line, or part of one between carriage returns or NUL
    segments: list[tuple[int, bytes]]
    #: the rest of the block is the beginning of an unfinished line
    consumed_bytes: int
    #: line ends so far in the file
    line: int
    #: the block ends in a line whose rest is to be skipped
    skipping: bool


def split(data: bytes, *, line: int = 0, skipping: bool = False, flush: bool = False) -> Split:
    """Split a block into segments. The result does not depend on where blocks begin and end.

    flush: return the unfinished last line, too.
    """
    # NUL separates segments because a file system may return it for data that another host has
    # not written yet: the parts left and right of it do not belong together.
    segments: list[tuple[int, bytes]] = []
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
        is_last = stop == len(data)
        if is_last and stop - start <= LINE_CAP_BYTES and not flush:
            return Split(segments, start, line, False)
        segments.append((line + 1, token[0][:LINE_CAP_BYTES]))
        skipping = is_last
    return Split(segments, len(data), line, skipping)


def split_at(data: bytes, ends: Iterable[int], *, line: int) -> Split:
    """Split only the lines that contain these positions; the other lines are counted.

    Args:
        data: whole lines.
        ends: positions behind a byte of the line, in order. Those behind `data` are ignored.
    """
    # Neighbouring lines are split together.
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
    segments: list[tuple[int, bytes]] = []
    counted = 0
    for start, stop in ranges:
        line += data.count(b"\n", counted, start)
        part = split(data[start:stop], line=line)
        segments += part.segments
        line, counted = part.line, stop
    return Split(segments, len(data), line + data.count(b"\n", counted), False)


def banner_of(job: jobs.Job) -> re.Pattern[str]:
    """Return the pattern of this job's banners; the banners of other jobs are plain text."""
    # In Slurm the name may be followed by a token.
    return re.compile(
        rf"{BANNER_START}{re.escape(job.name)}(?:\.[a-z0-9]{{12}})? "
        rf"job {re.escape(job.raw_job_id or job.job_id or '')} task {job.array_task_id or 0} "
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
