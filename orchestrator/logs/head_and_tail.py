"""Reads the beginning and the end of a log with true line numbers, in bounded time."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Generator, Iterator

from orchestrator import errors, jobs
from orchestrator.clocks import deadlines
from orchestrator.logs import files, lines, searching
from orchestrator.logs.reading import Line

#: The beginning shows how the job was set up.
HEAD_BYTES = 2 * 1024 * 1024
#: 1,024 ranks that fail at once with 5 kB each print 5 MB.
TAIL_BYTES = 8 * 1024 * 1024

_COUNT_BLOCK_BYTES = 1024 * 1024
_LINES_BLOCK_BYTES = 64 * 1024


@dataclasses.dataclass
class Scan:
    #: seconds since 1970 of the last write
    written_at: float | None = None
    #: between beginning and end, where lines are only counted
    skipped_bytes: int = 0
    #: not counted before the deadline: the numbers of later lines are too low
    uncounted_bytes: int = 0
    #: the deadline came before the last line
    is_cut: bool = False
    #: why the log was not read; "": it was
    problem: str = ""


def scan(
    path: str,
    into: Scan,
    *,
    job: jobs.Job | None = None,
    deadline: deadlines.Deadline = deadlines.NEVER,
) -> Iterator[Line]:
    """Yield the lines of the beginning and the end of a log, and fill `into`.

    Raises nothing. With a job only the part of its newest attempt is read, or the whole file if it
    has no such part.
    """
    try:
        with files.opened(path) as (handle, status):
            into.written_at = status.st_mtime
            span = searching.WHOLE
            if job is not None:
                share = deadline.share(3)
                span = searching.attempt_span(path, job, job.attempt, deadline=share) or span
            begin, end, line = span
            end = status.st_size if end is None else end
            if end - begin <= HEAD_BYTES + TAIL_BYTES:
                yield from _lines(handle, begin, end, line, into, deadline)
                return
            stop, start = begin + HEAD_BYTES, end - TAIL_BYTES
            share = deadline.share(3)
            line = yield from _lines(handle, begin, stop, line, into, share, flush=False)
            into.skipped_bytes = start - stop
            count, into.uncounted_bytes = _count_lines(handle, stop, start, deadline.share(2))
            # A part of a line is not a line: it could mean something else.
            skipping = os.pread(handle, 1, start - 1) not in lines.SEGMENT_ENDS
            line += count
            yield from _lines(handle, start, end, line, into, deadline, skipping=skipping)
    except FileNotFoundError:
        into.problem = files.NO_LOG_YET
    except (OSError, errors.OrchestratorError) as error:
        into.problem = f"{getattr(error, 'strerror', None) or error}"


def _lines(
    handle: int,
    begin: int,
    end: int,
    line: int,
    into: Scan,
    deadline: deadlines.Deadline,
    *,
    skipping: bool = False,
    flush: bool = True,
) -> Generator[Line, None, int]:
    """Yield the lines between two offsets; return the number of line ends so far.

    skipping: the first offset is in a line, whose rest is skipped. flush: `end` ends the last line.
    """
    offset = begin
    while offset < end:
        if deadline.is_over:
            into.is_cut = True
            break
        size = min(_LINES_BLOCK_BYTES, end - offset)
        data = os.pread(handle, size, offset)
        # A log that has shrunk ends before `end`.
        last = len(data) < size or offset + size >= end
        part = lines.split(data, line=line, skipping=skipping, flush=last and flush)
        for number, raw in part.segments:
            text = lines.clean(raw)
            if text and not text.isspace():
                yield Line(number, text, None)
        line, skipping = part.line, part.skipping
        offset += part.consumed_bytes
        if last:
            break
    return line


def _count_lines(
    handle: int, begin: int, end: int, deadline: deadlines.Deadline
) -> tuple[int, int]:
    """Return the number of line ends, and how many bytes were left at the deadline."""
    count = 0
    while begin < end and not deadline.is_over:
        data = os.pread(handle, min(_COUNT_BLOCK_BYTES, end - begin), begin)
        if not data:
            return count, 0
        count += data.count(b"\n")
        begin += files.hole_bytes(handle, begin, data) or len(data)
    return count, max(0, end - begin)
