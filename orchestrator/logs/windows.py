"""Parts of a log as lines of text that a page can show, whatever the log contains."""

from __future__ import annotations

import os
from typing import NamedTuple

from orchestrator.logs import files, lines, tailing

#: Of a page, and of an event; a longer line takes several.
WINDOW_BYTES = 256 * 1024
#: The newest lines that a page shows first.
TAIL_LINES = 200
#: Lines that a page shows around one.
AROUND_LINES = 100
#: Lines are not counted in larger files whose beginning was not counted before.
_MAX_COUNTED_BYTES = 512 * 1024 * 1024
_STEP_BYTES = 4 * 1024 * 1024
_MAX_FILES = 64


class Window(NamedTuple):
    #: number of the first line, from 1; None: unknown
    first_line: int | None
    lines: list[str]
    #: the unfinished last line of the file
    partial: str
    begin_bytes: int
    #: behind the last whole line
    end_bytes: int
    size_bytes: int
    inode: int


class LineCounter:
    """Counts the lines of logs, and remembers how far it has counted."""

    def __init__(self) -> None:
        #: (device, inode) -> number of line ends before each multiple of _STEP_BYTES
        self._counts: dict[tuple[int, int], list[int]] = {}

    def before(self, handle: int, status: os.stat_result, offset: int) -> int | None:
        """Return the number of line ends before an offset; None: too many to count."""
        counts = self._of(status)
        target = offset // _STEP_BYTES
        if (target - len(counts) + 1) * _STEP_BYTES > _MAX_COUNTED_BYTES:
            return None
        while len(counts) <= target:
            counts.append(counts[-1] + self._block(handle, len(counts) - 1).count(b"\n"))
        rest = os.pread(handle, offset - target * _STEP_BYTES, target * _STEP_BYTES)
        return counts[target] + rest.count(b"\n")

    def offset_of(self, handle: int, status: os.stat_result, line: int) -> int:
        """Return the offset of a line, counted from 1; the end of the file if it has fewer."""
        counts = self._of(status)
        place = 0
        while True:
            if place + 1 == len(counts):
                block = self._block(handle, place)
                if len(block) < _STEP_BYTES or len(counts) * _STEP_BYTES > _MAX_COUNTED_BYTES:
                    break
                counts.append(counts[-1] + block.count(b"\n"))
            if counts[place + 1] >= line - 1:
                block = self._block(handle, place)
                break
            place += 1
        at = -1
        for _ in range(line - 1 - counts[place]):
            at = block.find(b"\n", at + 1)
            if at < 0:
                return min(place * _STEP_BYTES + len(block), status.st_size)
        return place * _STEP_BYTES + at + 1

    def _of(self, status: os.stat_result) -> list[int]:
        key = status.st_dev, status.st_ino
        counts = self._counts.setdefault(key, [0])
        # A truncated log begins anew.
        del counts[status.st_size // _STEP_BYTES + 1 :]
        while len(self._counts) > _MAX_FILES:
            del self._counts[next(iter(self._counts))]
        return counts

    @staticmethod
    def _block(handle: int, place: int) -> bytes:
        return os.pread(handle, _STEP_BYTES, place * _STEP_BYTES)


def newest(path: str, counter: LineCounter) -> Window:
    """Return the last lines of a log. Raises NotFoundError if there is none."""
    with files.existing(path) as (handle, status):
        begin = tailing.tail_offset(handle, status.st_size, TAIL_LINES)
        begin = max(begin, status.st_size - WINDOW_BYTES)
        return _window(handle, status, begin, counter)


def around(path: str, line: int, counter: LineCounter) -> Window:
    """Return the lines around one. Raises NotFoundError."""
    with files.existing(path) as (handle, status):
        begin = counter.offset_of(handle, status, max(1, line - AROUND_LINES))
        return _window(handle, status, begin, counter, most=2 * AROUND_LINES)


def at(path: str, offset: int, counter: LineCounter) -> Window:
    """Return the lines that begin at an offset or behind it. Raises NotFoundError."""
    with files.existing(path) as (handle, status):
        return _window(handle, status, min(offset, status.st_size), counter)


def before(path: str, offset: int, counter: LineCounter) -> Window:
    """Return the lines that end before an offset. Raises NotFoundError."""
    with files.existing(path) as (handle, status):
        offset = min(offset, status.st_size)
        begin = tailing.tail_offset(handle, offset, TAIL_LINES)
        begin = max(begin, offset - WINDOW_BYTES, 0)
        return _window(handle, status, begin, counter, end=offset)


def added(path: str, inode: int, offset: int) -> Window | None:
    """Return what was written behind an offset; None: the log was replaced or truncated.

    At most WINDOW_BYTES; more follow in the next call. Raises NotFoundError.
    """
    with files.existing(path) as (handle, status):
        if status.st_ino != inode or status.st_size < offset:
            return None
        if status.st_size - offset > 16 * WINDOW_BYTES:
            return None
        return _window(handle, status, offset, None)


def _window(
    handle: int,
    status: os.stat_result,
    begin: int,
    counter: LineCounter | None,
    *,
    most: int | None = None,
    end: int | None = None,
) -> Window:
    limit = WINDOW_BYTES if end is None else end - begin
    data = os.pread(handle, limit, begin)
    is_file_end = begin + len(data) >= status.st_size
    whole, separator, rest = data.rpartition(b"\n")
    if not separator and not is_file_end:
        # A line that is longer than the window is shown in parts.
        whole, separator, rest = data, b"", b""
    parts = whole.split(b"\n") if whole or separator else []
    if most is not None and len(parts) > most:
        kept = parts[:most]
        size = sum(len(part) + 1 for part in kept)
        parts, rest = kept, b""
    else:
        size = len(whole) + len(separator)
    number = None if counter is None else counter.before(handle, status, begin)
    return Window(
        first_line=None if number is None else number + 1,
        lines=[shown(part) for part in parts],
        partial=shown(rest) if rest and is_file_end else "",
        begin_bytes=begin,
        end_bytes=begin + size,
        size_bytes=status.st_size,
        inode=status.st_ino,
    )


def shown(line: bytes) -> str:
    """Return a line as a terminal would show it, without escape sequences, and not too long."""
    newest_state = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = lines.safe(newest_state[: lines.LINE_CAP_BYTES].decode(errors="replace"))
    cut = len(newest_state) - lines.LINE_CAP_BYTES
    return f"{text} … {cut:,} more bytes" if cut > 0 else text
