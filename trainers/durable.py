"""Files and folders that are complete or do not exist; checksums in the format of sha256sum."""

import hashlib
import os
import pathlib
import shutil
from typing import IO


def checksum_path(path: pathlib.Path) -> pathlib.Path:
    """Return the file with the checksum of a checkpoint."""
    return path.with_name(f"{path.name}.sha256")


def sha256(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, 64 digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class HashingWriter:
    """A file for torch.save that hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, content: bytes) -> int:
        """Write and hash."""
        self._hash.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def hexdigest(self) -> str:
        """Return the SHA-256 of everything written."""
        return self._hash.hexdigest()


def replace(draft: pathlib.Path, path: pathlib.Path, digest: str) -> None:
    """Give a complete file, with its digest, or a folder its name; it may replace another one."""
    if draft.is_dir():
        old = draft.with_name(f"{draft.name}.old")
        if path.is_dir():
            os.replace(path, old)
        os.replace(draft, path)
        remove(old)
        return
    # Between the two calls, the digests of both files are valid.
    before = digests(path) if path.exists() and checksum_path(path).exists() else []
    _write_checksum(path, digest, *before)
    os.replace(draft, path)
    if before:
        _write_checksum(path, digest)


def digests(path: pathlib.Path) -> list[str]:
    """Return the digests in the file beside a checkpoint."""
    return [line[:64] for line in checksum_path(path).read_text().splitlines()]


def _write_checksum(path: pathlib.Path, *valid: str) -> None:
    target = checksum_path(path)
    draft = target.with_name(f"{target.name}.draft.{os.getpid()}")
    try:
        draft.write_text("".join(f"{digest}  {path.name}\n" for digest in valid))
        sync(draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a file or folder, with hard links where the file system has them."""
    remove(target)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link)
    else:
        _link(source, target)


def _link(source: str | pathlib.Path, target: str | pathlib.Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def remove(path: pathlib.Path) -> None:
    """Remove a file or folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(*paths: pathlib.Path) -> None:
    """Write files and folders to disk; a name is durable only after its folder is synced."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
