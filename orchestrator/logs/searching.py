"""Lines of a log that fit a regular expression, of any bytes and any size; what grep does."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.logs import files, lines
from orchestrator.text import expressions

#: Bytes that are looked at together; a line may be as long.
_BLOCK_BYTES = 4 * 1024 * 1024
#: What in an expression may fit a line end or asks for the end of the text: such a one is held
#: against each line by itself, which takes three times as long.
_CROSSES_LINES = re.compile(r"\[\^|\\[sWDnAZvfrtx0-7]|\(\?[a-zA-Z]*s|[\x00-\x1f]|\(\?-")


class Hit(NamedTuple):
    """A line, or one beside a line, that fits."""

    #: from 1, in the file
    number: int
    #: where the line begins in the file
    offset_bytes: int
    #: without its end; of a progress bar the state that fits; at most LINE_CAP_BYTES
    text: bytes
    #: false: a line of context
    fits: bool
    #: lines were left out before this one
    gap: bool


class BadExpressionError(ValueError):
    """The message is that of Python's re."""


def compile_expression(text: str, *, ignore_case: bool = False) -> re.Pattern[bytes]:
    """Return the expression for search(); BadExpressionError. Case is that of ASCII letters.

    RE2 matches it, in linear time, unless it has lookaround, back-references or the like.
    """
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    source = text.encode("utf-8", "surrogateescape")
    try:
        plain = re.compile(source, flags)
    except (re.error, RecursionError, OverflowError) as exc:
        raise BadExpressionError(str(exc)) from exc
    return expressions.linear_bytes(source, ignore_case=ignore_case) or plain


def search(
    path: str,
    expression: re.Pattern[bytes],
    *,
    around: int = 0,
    begin_bytes: int = 0,
    end_bytes: int | None = None,
    before_lines: int = 0,
) -> Iterator[Hit]:
    """Yield the lines that fit, with so many lines `around` each.

    Only between two places of the file, of which the first lies behind so many lines. A line that
    is longer than 4 MiB is looked at in parts. NotFoundError where there is no log.
    """
    handle = files.existing(path)
    try:
        window = _Window(around)
        place, number, carry = begin_bytes, before_lines, b""
        crosses = _CROSSES_LINES.search(expression.pattern.decode("latin-1"))
        finds = _spans_by_line if crosses else _spans
        more = True
        while more:
            left = _BLOCK_BYTES if end_bytes is None else min(_BLOCK_BYTES, end_bytes - place)
            data = os.pread(handle, left, place) if left > 0 else b""
            more = len(data) == _BLOCK_BYTES
            block = carry + data
            begin = place - len(carry)
            # What is a hole has no line end, and may be a terabyte.
            hole_bytes = files.hole_bytes(handle, place, data)
            place += max(hole_bytes, len(data))
            cut = len(block)
            if more and len(carry) < _BLOCK_BYTES and not hole_bytes:
                cut = block.rfind(b"\n") + 1
            block, carry = block[:cut], block[cut:]
            yield from window.hits(block, begin, number, list(finds(expression, block)))
            number += block.count(b"\n")
    finally:
        os.close(handle)


class _Span(NamedTuple):
    """A line that fits, and the part of it between carriage returns, in its block."""

    begin: int
    end: int
    shown_begin: int
    shown_end: int


def _spans(expression: re.Pattern[bytes], block: bytes) -> Iterator[_Span]:
    at = 0
    while at < len(block) and (found := expression.search(block, at)):
        begin = block.rfind(b"\n", at, found.start()) + 1 or at
        if begin == len(block):
            # Nothing fits behind the last line end.
            return
        end = block.find(b"\n", found.start())
        end = len(block) if end < 0 else end
        yield _span(block, begin, end, found.start(), found.end())
        at = end + 1


def _spans_by_line(expression: re.Pattern[bytes], block: bytes) -> Iterator[_Span]:
    at = 0
    while at < len(block):
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        if found := expression.search(block[at:end]):
            yield _span(block, at, end, at + found.start(), at + found.end())
        at = end + 1


def _span(block: bytes, begin: int, end: int, first: int, last: int) -> _Span:
    # The states of a progress bar are one line.
    shown = block.rfind(b"\r", begin, first) + 1 or begin
    stop = block.find(b"\r", last, end)
    return _Span(begin, end, shown, end if stop < 0 else stop)


class _Window:
    """The lines around those that fit, from block to block."""

    def __init__(self, around: int) -> None:
        self._around = around
        self._before: collections.deque[tuple[int, int, bytes]] = collections.deque(maxlen=around)
        #: lines still to show behind the last one that fits
        self._after = 0
        self._shown = 0

    def hits(self, block: bytes, begin: int, number: int, spans: list[_Span]) -> Iterator[Hit]:
        """Yield what is to be shown of a block that begins there, behind so many lines."""
        if self._around:
            yield from self._with_context(block, begin, number, spans)
            return
        counted = 0
        for span in spans:
            number += block.count(b"\n", counted, span.begin)
            counted = span.begin
            text = block[span.shown_begin : span.shown_end][: lines.LINE_CAP_BYTES]
            yield Hit(number + 1, begin + span.begin, text, True, False)

    def _with_context(
        self, block: bytes, begin: int, number: int, spans: list[_Span]
    ) -> Iterator[Hit]:
        fitting = {span.begin: span for span in spans}
        at = 0
        if not spans and not self._after:
            # Only what may stand before the next one that fits has to be cut into lines.
            at = _last_lines(block, self._around)
            number += block.count(b"\n", 0, at)
        while at < len(block):
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            number += 1
            span = fitting.get(at)
            if span is not None:
                for earlier in self._before:
                    yield self._hit(*earlier, fits=False)
                self._before.clear()
                text = block[span.shown_begin : span.shown_end][: lines.LINE_CAP_BYTES]
                yield self._hit(number, begin + at, text, fits=True)
                self._after = self._around
            else:
                text = block[at:end].rstrip(b"\r")[: lines.LINE_CAP_BYTES]
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
    """Return where the last so many lines of a block begin."""
    at = len(block) - 1
    for _ in range(count):
        at = block.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            return 0
    return at + 1
