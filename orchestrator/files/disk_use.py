"""Disk use of folders: symbolic links are not followed, and hard links count once."""

from __future__ import annotations

import collections
import os
import stat
from collections.abc import Callable
from pathlib import Path

#: st_blocks counts in these (man 2 stat).
_BLOCK_BYTES = 512


class Examiner:
    """Adds up the disk use of one folder after another, up to a number of files."""

    def __init__(self, limit_files: int) -> None:
        self._left = limit_files
        self._counted: set[tuple[int, int]] = set()

    @property
    def is_over(self) -> bool:
        """Whether the limit is reached: what was not examined yet is not counted."""
        return self._left <= 0

    def examine(self, folder: Path, kind: Callable[[str], str]) -> collections.Counter[str]:
        """Return the bytes on disk by kind; `kind` returns the kind of an entry of the folder.

        What cannot be read, such as a missing folder, is left out.
        """
        total: collections.Counter[str] = collections.Counter()
        for name, path, status in _listed(folder):
            if self.is_over:
                break
            total[kind(name)] += self._size_bytes(status)
            if stat.S_ISDIR(status.st_mode):
                total[kind(name)] += self._tree_bytes(path)
        return total

    def size_bytes(self, path: Path) -> int:
        """Return the bytes on disk of a file, or of a folder with all that it contains."""
        try:
            status = os.lstat(path)
        except OSError:
            return 0
        inside = self._tree_bytes(path) if stat.S_ISDIR(status.st_mode) else 0
        return self._size_bytes(status) + inside

    def _tree_bytes(self, folder: Path) -> int:
        total, waiting = 0, [folder]
        while waiting and not self.is_over:
            for _, path, status in _listed(waiting.pop()):
                total += self._size_bytes(status)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                if self.is_over:
                    break
        return total

    def _size_bytes(self, status: os.stat_result) -> int:
        self._left -= 1
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            identity = status.st_dev, status.st_ino
            if identity in self._counted:
                return 0
            self._counted.add(identity)
        return status.st_blocks * _BLOCK_BYTES


def _listed(folder: Path) -> list[tuple[str, Path, os.stat_result]]:
    """Return name, path and status of the entries of a folder, those that can be read."""
    listed = []
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            return []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                listed.append((entry.name, folder / entry.name, status))
    except OSError:
        pass
    return listed
