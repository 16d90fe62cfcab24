"""Several logs as they grow, in whole lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from orchestrator.logs import files, showing

_BLOCK_BYTES = 64 * 1024

Key = TypeVar("Key", bound=Hashable)


class Followed(NamedTuple, Generic[Key]):
    """Lines that came together."""

    key: Key
    #: without their ends
    lines: list[bytes]


def follow_all(
    look: Callable[[], tuple[bool, Mapping[Key, str]]],
    *,
    wait: Callable[[float], None],
    lines: int | None = 10,
    poll_seconds: float = 1.0,
) -> Iterator[Followed[Key]]:
    """Yield the last lines of each log, and then what is added, until nothing is left.

    `look` returns whether there is more to come, and where each log lies that there is by now. The
    rest of a line is waited for, up to 64 KiB of it.
    """
    followers: dict[Key, _Follower] = {}
    while True:
        # Asked before reading: what was written before the end is then read for certain.
        is_live, paths = look()
        for key, path in paths.items():
            follower = followers.setdefault(key, _Follower(lines))
            for found in follower.news(path, final=not is_live):
                yield Followed(key, found)
        if not is_live:
            return
        wait(poll_seconds)


class _Follower:
    def __init__(self, lines: int | None) -> None:
        self._lines = lines
        self._inode: int | None = None
        self._offset = 0
        self._rest = b""

    def news(self, path: str, *, final: bool) -> Iterator[list[bytes]]:
        """Yield the lines that were added, a block at a time."""
        try:
            handle, status = files.open_log(path)
        except OSError:
            return
        try:
            if self._inode is None and self._lines is not None:
                self._offset = showing.tail_offset(handle, status.st_size, self._lines)
            elif status.st_ino != self._inode or status.st_size < self._offset:
                self._offset, self._rest = 0, b""
            self._inode = status.st_ino
            while data := showing.block(handle, self._offset):
                self._offset += len(data)
                *found, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > _BLOCK_BYTES:
                    found, self._rest = [*found, self._rest], b""
                if found:
                    yield found
        finally:
            os.close(handle)
        if final and self._rest:
            yield [self._rest]
            self._rest = b""
