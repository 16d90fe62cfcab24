"""What tells whether files have changed, without reading them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

#: device, inode, size in bytes and modification time in nanoseconds of each file
Stamp: TypeAlias = tuple[tuple[int, int, int, int], ...]


def stamp(paths: Sequence[Path]) -> Stamp:
    """Return the stamp of files; zeros stand for a file that cannot be examined."""
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            found.append((0, 0, 0, 0))
        else:
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


class Watch:
    """Whether files may have changed, by their stamps."""

    def __init__(self) -> None:
        self._last: Stamp | None = None
        self._was_new = True

    def may_have_changed(self, stamp: Stamp) -> bool:
        """Return whether they may have changed before this stamp was taken.

        True also once more after a change: a write within the same tick of the file system's clock
        (4 ms on Linux) leaves the stamp as it is.
        """
        is_new = stamp != self._last
        result = is_new or self._was_new
        self._last, self._was_new = stamp, is_new
        return result
