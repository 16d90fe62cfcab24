"""Follows logs as they grow, as tail -f does."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from orchestrator.logs import files, tailing

Key = TypeVar("Key", bound=Hashable)


class Followed(NamedTuple, Generic[Key]):
    """New lines of one log."""

    key: Key
    #: without line ends
    lines: list[bytes]


def follow(
    path: str,
    *,
    done: Callable[[], bool],
    wait: Callable[[float], None],
    lines: int | None = 10,
    poll_seconds: float = 1.0,
) -> Iterator[bytes]:
    """Yield the last lines and then new bytes, until `done()` and all is read.

    The log may appear later, shrink, or be replaced. Raises NotFoundError at the end if it never
    appeared.
    """
    log = _GrowingLog(lines)
    while True:
        # Before reading: what was written before the end of the job is then certainly read.
        is_done = done()
        yield from log.new_blocks(path)
        # A log that appears later is new: it is shown from its beginning.
        log.lines = None
        if is_done:
            break
        wait(poll_seconds)
    if not log.was_found:
        os.close(files.open_existing(path))


def follow_all(
    look: Callable[[], tuple[bool, Mapping[Key, str]]],
    *,
    wait: Callable[[float], None],
    lines: int | None = 10,
    poll_seconds: float = 1.0,
) -> Iterator[Followed[Key]]:
    """Yield the last lines of each log and then new lines, until all jobs have ended.

    look: returns whether any job is live, and the paths of the logs so far. An unfinished line
    waits for its end, up to 64 KiB.
    """
    logs: dict[Key, _GrowingLog] = {}
    while True:
        # Before reading, as above.
        is_live, paths = look()
        for key, path in paths.items():
            log = logs.setdefault(key, _GrowingLog(lines))
            for new in log.new_lines(path):
                yield Followed(key, new)
            if not is_live and log.rest:
                yield Followed(key, [log.rest])
        if not is_live:
            return
        wait(poll_seconds)


class _GrowingLog:
    def __init__(self, lines: int | None) -> None:
        #: to show at first; None: all
        self.lines = lines
        #: an unfinished line
        self.rest = b""
        self._inode: int | None = None
        self._offset = 0

    @property
    def was_found(self) -> bool:
        return self._inode is not None

    def new_blocks(self, path: str) -> Iterator[bytes]:
        try:
            handle, status = files.open_log(path)
        except OSError:
            return
        try:
            if self._inode is None and self.lines is not None:
                self._offset = tailing.tail_offset(handle, status.st_size, self.lines)
            elif status.st_ino != self._inode or status.st_size < self._offset:
                self._offset, self.rest = 0, b""
            self._inode = status.st_ino
            while data := _block(handle, self._offset):
                self._offset += len(data)
                yield data
        finally:
            os.close(handle)

    def new_lines(self, path: str) -> Iterator[list[bytes]]:
        for data in self.new_blocks(path):
            *lines, self.rest = (self.rest + data).split(b"\n")
            if len(self.rest) > tailing.BLOCK_BYTES:
                lines, self.rest = [*lines, self.rest], b""
            if lines:
                yield lines


def _block(handle: int, offset: int) -> bytes:
    try:
        return os.pread(handle, tailing.BLOCK_BYTES, offset)
    except OSError:
        # Such as ESTALE of NFS. The next pass opens the file again.
        return b""
