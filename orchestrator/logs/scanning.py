"""The beginning and the end of a log, line by line, with true line numbers, in bounded time."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Generator, Iterator

from orchestrator.clocks import deadlines
from orchestrator.logs import files, lines
from orchestrator.logs.reading import Line

#: Read line by line at the beginning of a log: what set the job up, and what it is.
HEAD_BYTES = 2 * 1024 * 1024
#: Read line by line at its end: 1,024 ranks that fail at once with 5 kB each print 5 MB.
TAIL_BYTES = 8 * 1024 * 1024

_BLOCK_BYTES = 1024 * 1024
#: Of lines that are handed out, between two looks at the clock.
_LINES_BYTES = 64 * 1024


@dataclasses.dataclass
class Scan:
    """What one pass over a log took."""

    size_bytes: int = 0
    #: seconds since 1970 of the last write
    written_at: float | None = None
    #: bytes between beginning and end of which only the lines were counted
    skipped_bytes: int = 0
    #: bytes of these whose lines were not counted in time: numbers of later lines are too low
    uncounted_bytes: int = 0
    #: the deadline came before the last line
    is_cut: bool = False
    #: why it was not read; ""
    problem: str = ""


def scan(
    path: str,
    into: Scan,
    *,
    banner: re.Pattern[str] | None = None,
    attempt: int | None = None,
    head_bytes: int = HEAD_BYTES,
    tail_bytes: int = TAIL_BYTES,
    deadline: deadlines.Deadline = deadlines.NEVER,
) -> Iterator[Line]:
    """Yield the lines of the file's beginning and end; nothing is raised for one not readable.

    At the deadline lines between are no longer counted, and then no more are yielded.

    With `banner` lines know their attempt, and with `attempt` only that one's lines are yielded;
    the beginning and the end are those of its part of the file.
    """
    try:
        handle, status = files.open_log(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        into.problem = files.NO_LOG_YET if missing else f"{error.strerror or error}"
        return
    try:
        into.written_at = status.st_mtime
        begin, end, line = 0, status.st_size, 0
        if banner is not None and attempt is not None:
            part_deadline = deadline.share(3)
            begin, end, line = _part(handle, status.st_size, banner, attempt, part_deadline)
        into.size_bytes = end - begin
        if end - begin <= head_bytes + tail_bytes:
            yield from _lines(handle, begin, end, line, attempt, into, deadline)
            return
        stop = begin + head_bytes
        line = yield from _lines(handle, begin, stop, line, attempt, into, deadline.share(3))
        start = end - tail_bytes
        into.skipped_bytes = start - stop
        count, into.uncounted_bytes = _count(handle, stop, start, deadline.share(2))
        yield from _lines(handle, start, end, line + count, attempt, into, deadline)
    except OSError as error:
        into.problem = f"{error.strerror or error}"
    finally:
        os.close(handle)


def _lines(
    handle: int,
    begin: int,
    end: int,
    line: int,
    attempt: int | None,
    into: Scan,
    deadline: deadlines.Deadline,
) -> Generator[Line, None, int]:
    """Yield the lines between two places; returns the number of line ends passed."""
    offset, skipping = begin, False
    while offset < end:
        if deadline.is_over:
            into.is_cut = True
            break
        data = os.pread(handle, min(_LINES_BYTES, end - offset), offset)
        last = not data or offset + len(data) >= end
        part = lines.split(data, offset_bytes=offset, line=line, skipping=skipping, flush=last)
        for number, place, raw, _ in part.segments:
            text = lines.clean(raw)
            if text and not text.isspace():
                yield Line(number=number, text=text, offset_bytes=place, attempt=attempt)
        line, skipping = part.line, part.skipping
        offset += part.consumed_bytes
        if last:
            break
    return line


def _count(handle: int, begin: int, end: int, deadline: deadlines.Deadline) -> tuple[int, int]:
    """Return how many line ends there are, and how many bytes were left at the deadline."""
    count = 0
    while begin < end and not deadline.is_over:
        data = os.pread(handle, min(_BLOCK_BYTES, end - begin), begin)
        if not data:
            return count, 0
        count += data.count(b"\n")
        begin += files.hole_bytes(handle, begin, data) or len(data)
    return count, max(0, end - begin)


def _part(
    handle: int, size: int, banner: re.Pattern[str], attempt: int, deadline: deadlines.Deadline
) -> tuple[int, int, int]:
    """Return where an attempt's lines begin and end, and how many line ends stand before.

    The whole file where it has no banner of that attempt, or none is found before the deadline.
    """
    found: tuple[int, int] | None = None
    offset = line = 0
    highest = -1
    start = lines.BANNER_START.encode()
    while offset < size and not deadline.is_over:
        data = os.pread(handle, min(_BLOCK_BYTES, size - offset), offset)
        if not data:
            break
        if hole_bytes := files.hole_bytes(handle, offset, data):
            offset += hole_bytes
            continue
        # To the last line end, so that no banner is cut in two.
        cut = data.rfind(b"\n") + 1 or len(data)
        place = data.find(start, 0, cut)
        while place >= 0:
            stop = data.find(b"\n", place, cut)
            stop = cut if stop < 0 else stop
            match = banner.fullmatch(lines.clean(data[place:stop]))
            alone = place == 0 or data[place - 1 : place] == b"\n"
            if match and alone and int(match["attempt"]) > highest:
                highest = int(match["attempt"])
                if highest == attempt:
                    found = offset + place, line + data.count(b"\n", 0, place)
                elif highest > attempt and found is not None:
                    return found[0], offset + place, found[1]
            place = data.find(start, stop, cut)
        line += data.count(b"\n", 0, cut)
        offset += cut
    return (0, size, 0) if found is None else (found[0], size, found[1])
