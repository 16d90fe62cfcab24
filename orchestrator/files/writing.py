"""Writing of files: replaced as a whole, and brought to disk."""

from __future__ import annotations

import os
from pathlib import Path

#: Pattern of the files that a replace() leaves whose process was killed.
DRAFTS = f".*.{'[0-9a-f]' * 8}"


def replace(path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file atomically by one that by default only the user can read. Raises OSError.

    mode: its permission bits. durable: its content is on disk before it replaces the old one.
    """
    new = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            # The bits of open() would be reduced by the umask.
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
