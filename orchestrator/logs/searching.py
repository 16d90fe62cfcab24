"""Searches a log for a regular expression, as grep does."""

from __future__ import annotations

import collections
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from orchestrator import jobs
from orchestrator.clocks import deadlines
from orchestrator.logs import files, lines
from orchestrator.text import expressions

#: A longer line is searched in parts.
_BLOCK_BYTES = 4 * 1024 * 1024
#: Parts of a regex that may match a line end or the end of the text. Such a regex is applied to
#: each line by itself, which takes three times as long.
_CROSSES_LINES = re.compile(r"\[\^|\\[sWDnAZvfrtx0-7]|\(\?[a-zA-Z]*s|[\x00-\x1f]|\(\?-")


class Hit(NamedTuple):
    #: from 1
    number: int
    offset_bytes: int
    #: without line end; of a progress bar, the state that matches; at most LINE_CAP_BYTES
    text: bytes
    #: False: a context line
    fits: bool
    #: lines were left out before this one
    gap: bool


class Span(NamedTuple):
    """A part of a log, in whole lines."""

    begin_bytes: int
    #: None: up to the end of the file, which may grow
    end_bytes: int | None
    #: number of lines before it
    before_lines: int


WHOLE = Span(0, None, 0)


def compile_expression(text: str, *, ignore_case: bool = False) -> re.Pattern[bytes]:
    """Return the expression for search(). Raises ExpressionError.

    RE2 matches it in linear time, unless it has lookaround, back-references or the like.
    ignore_case: of ASCII letters.
    """
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    source = text.encode("utf-8", "surrogateescape")
    try:
        plain = re.compile(source, flags)
    except (re.error, RecursionError, OverflowError) as exc:
        raise expressions.ExpressionError(str(exc)) from exc
    return expressions.linear_bytes(source, ignore_case=ignore_case) or plain


def search(
    path: str,
    expression: re.Pattern[bytes] | None,
    *,
    around: int = 0,
    span: Span = WHOLE,
    deadline: deadlines.Deadline = deadlines.NEVER,
) -> Iterator[Hit]:
    """Yield the lines that match, each with `around` context lines before and after it.

    expression: None matches all lines; of a progress bar all states are yielded, as one line. The
    search ends at the deadline. Raises NotFoundError.
    """
    with files.existing(path) as (handle, _):
        window = _Window(around)
        offset, number, carry = span.begin_bytes, span.before_lines, b""
        find_lines = _finder(expression)
        more = True
        while more and not deadline.is_over:
            size = _BLOCK_BYTES
            if span.end_bytes is not None:
                size = min(_BLOCK_BYTES, span.end_bytes - offset)
            data = os.pread(handle, size, offset) if size > 0 else b""
            more = len(data) == _BLOCK_BYTES
            block = carry + data
            begin = offset - len(carry)
            # A hole has no line ends, and may be a terabyte.
            hole_bytes = files.hole_bytes(handle, offset, data)
            offset += max(hole_bytes, len(data))
            cut = len(block)
            if more and len(carry) < _BLOCK_BYTES and not hole_bytes:
                cut = block.rfind(b"\n") + 1
            block, carry = block[:cut], block[cut:]
            yield from window.hits(block, begin, number, dict(find_lines(block)))
            number += block.count(b"\n")


def attempt_span(
    path: str, job: jobs.Job, attempt: int, *, deadline: deadlines.Deadline = deadlines.NEVER
) -> Span | None:
    """Return the part of a job's log from the attempt's banner to the next; None: no such banner.

    Attempts only go up: a job that prints its old log begins no attempt. Raises NotFoundError.
    """
    banner = lines.banner_of(job)
    highest = -1
    begin: tuple[int, int] | None = None
    expression = re.compile(rb"^" + re.escape(lines.BANNER_START.encode()), re.MULTILINE)
    for hit in search(path, expression, deadline=deadline):
        match = banner.fullmatch(lines.clean(hit.text))
        if match is None or int(match["attempt"]) <= highest:
            continue
        if begin is not None:
            return Span(begin[0], hit.offset_bytes, begin[1])
        highest = int(match["attempt"])
        if highest == attempt:
            begin = hit.offset_bytes, hit.number - 1
    return None if begin is None else Span(begin[0], None, begin[1])


def _finder(
    expression: re.Pattern[bytes] | None,
) -> Callable[[bytes], Iterator[tuple[int, bytes]]]:
    """Return what yields the offset of each line that matches, and what to show of it."""
    if expression is None:
        return _all_lines
    crosses = _CROSSES_LINES.search(expression.pattern.decode("latin-1"))
    return functools.partial(_matching_lines_one_by_one if crosses else _matching_lines, expression)


def _all_lines(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(block):
        end = _line_end(block, at)
        yield at, _whole(block[at:end])
        at = end + 1


def _matching_lines(expression: re.Pattern[bytes], block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(block) and (match := expression.search(block, at)):
        begin = block.rfind(b"\n", at, match.start()) + 1 or at
        if begin == len(block):
            # Behind the last line end there is no line.
            return
        end = _line_end(block, match.start())
        yield begin, _shown(block[begin:end], match.start() - begin, match.end() - begin)
        at = end + 1


def _matching_lines_one_by_one(
    expression: re.Pattern[bytes], block: bytes
) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(block):
        end = _line_end(block, at)
        line = block[at:end]
        if match := expression.search(line):
            yield at, _shown(line, *match.span())
        at = end + 1


def _line_end(block: bytes, at: int) -> int:
    end = block.find(b"\n", at)
    return len(block) if end < 0 else end


def _whole(line: bytes) -> bytes:
    return line.rstrip(b"\r")[: lines.LINE_CAP_BYTES]


def _shown(line: bytes, first: int, last: int) -> bytes:
    """Return the part of a line that matches: of a progress bar, one state."""
    begin = line.rfind(b"\r", 0, first) + 1
    end = line.find(b"\r", last)
    return line[begin : len(line) if end < 0 else end][: lines.LINE_CAP_BYTES]


class _Window:
    """Adds context lines, also across blocks."""

    def __init__(self, around: int) -> None:
        self._around = around
        self._before: collections.deque[tuple[int, int, bytes]] = collections.deque(maxlen=around)
        #: context lines still to show
        self._after = 0
        #: number of the last line that was shown
        self._shown = 0

    def hits(
        self, block: bytes, begin: int, number: int, matching: Mapping[int, bytes]
    ) -> Iterator[Hit]:
        """Yield what to show of a block that begins at this offset, after so many lines."""
        at = 0
        if not matching and not self._after:
            # Only its last lines may be shown, as context of the next block.
            at = _last_lines(block, self._around)
            number += block.count(b"\n", 0, at)
        while at < len(block):
            end = _line_end(block, at)
            number += 1
            if at in matching:
                for earlier in self._before:
                    yield self._hit(*earlier, fits=False)
                self._before.clear()
                yield self._hit(number, begin + at, matching[at], fits=True)
                self._after = self._around
            else:
                text = _whole(block[at:end])
                if self._after:
                    self._after -= 1
                    yield self._hit(number, begin + at, text, fits=False)
                else:
                    self._before.append((number, begin + at, text))
            at = end + 1

    def _hit(self, number: int, offset_bytes: int, text: bytes, *, fits: bool) -> Hit:
        gap = 0 < self._shown < number - 1
        self._shown = number
        return Hit(number, offset_bytes, text, fits, gap)


def _last_lines(block: bytes, count: int) -> int:
    """Return the offset of the last lines of a block."""
    at = len(block) - 1
    for _ in range(count):
        at = block.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            return 0
    return at + 1
