"""Follows logs as they grow, as tail -f does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from orchestrator.logs import files, tailing

_POLL_SECONDS = 1.0


def follow(
    path: str,
    *,
    done: Callable[[], bool],
    wait: Callable[[float], None],
    lines: int | None = 10,
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
        # A log that appears later is new: all its lines are shown.
        log.lines = None
        if is_done:
            break
        wait(_POLL_SECONDS)
    if log.inode is None:
        with files.existing(path):
            pass


def follow_all(
    look: Callable[[], tuple[bool, Mapping[int, str]]],
    *,
    wait: Callable[[float], None],
    lines: int | None = 10,
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the last lines of each log and then new lines, until all jobs have ended.

    Lines have no line ends. An unfinished line waits for its end, up to 64 KiB.

    look: returns whether any job is live, and the logs so far by the key that is yielded.
    """
    logs: dict[int, _GrowingLog] = {}
    while True:
        # Before reading, as above.
        is_live, paths = look()
        for key, path in paths.items():
            log = logs.setdefault(key, _GrowingLog(lines))
            for block in log.new_blocks(path):
                *whole_lines, log.rest = (log.rest + block).split(b"\n")
                if len(log.rest) > tailing.BLOCK_BYTES:
                    whole_lines, log.rest = [*whole_lines, log.rest], b""
                if whole_lines:
                    yield key, whole_lines
            if not is_live and log.rest:
                yield key, [log.rest]
            log.lines = None
        if not is_live:
            return
        lines = None
        wait(_POLL_SECONDS)


class _GrowingLog:
    def __init__(self, lines: int | None) -> None:
        #: to show at first; None: all
        self.lines = lines
        #: an unfinished line
        self.rest = b""
        #: None: the log was never seen
        self.inode: int | None = None
        self._offset = 0

    def new_blocks(self, path: str) -> Iterator[bytes]:
        try:
            with files.opened(path) as (handle, status):
                if self.inode is None and self.lines is not None:
                    self._offset = tailing.tail_offset(handle, status.st_size, self.lines)
                elif status.st_ino != self.inode or status.st_size < self._offset:
                    self._offset, self.rest = 0, b""
                self.inode = status.st_ino
                while data := os.pread(handle, tailing.BLOCK_BYTES, self._offset):
                    self._offset += len(data)
                    yield data
        except OSError:
            # No log yet, or such as ESTALE of NFS. The next pass opens the file again.
            return
