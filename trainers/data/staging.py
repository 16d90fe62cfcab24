"""Staging of a data set: its files are located, unpacked or downloaded once per folder.

Each file is renamed into place, so a file with its final name is complete. A process holds a lock
while it unpacks. On a file system without locks several processes may do the same work, with the
same result.
"""

import contextlib
import dataclasses
import fcntl
import gzip
import hashlib
import os
import pathlib
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from typing import IO

from trainers import errors

# Timeout of a download without any data.
SILENCE_SECONDS = 60
BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """A published file."""

    #: Path relative to the folder of data sets.
    path: str
    #: Address of the publisher.
    address: str
    #: Published MD5, 32 digits; if empty, the file is never downloaded.
    md5: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set."""

    #: Common name.
    title: str
    #: Files that a loader reads, relative to the folder of data sets.
    files: tuple[str, ...]
    #: Archives that contain the files.
    archives: tuple[Archive, ...]
    #: Alternative files that the loader can read instead, if all of them exist.
    other_files: tuple[str, ...] = ()


def stage(source: Source, folder: pathlib.Path, *, download: bool) -> None:
    """Ensure that all files of a data set exist.

    Raises DataError with instructions if they do not exist and cannot be staged.
    """
    if not _missing(source, folder) or has_other_files(source, folder):
        return
    if download:
        folder.mkdir(parents=True, exist_ok=True)
    if not folder.is_dir():
        raise errors.DataError(_advice(source, folder))
    try:
        with _lock(folder / f".{source.title}.lock"):
            for archive in source.archives:
                if _missing(source, folder):
                    _find(source, archive, folder, download=download)
                    _unpack(source, archive, folder)
    except OSError as error:
        raise errors.DataError(
            f"cannot write {source.title} to {folder}: {error}."
            " Free some space, or set another folder with --data-dir."
        ) from error
    if missing := _missing(source, folder):
        raise errors.DataError(
            f"{_names(source)} in {folder} lacks {', '.join(missing)}: download it again."
        )


def has_other_files(source: Source, folder: pathlib.Path) -> bool:
    """Return whether the alternative files of the data set exist."""
    return bool(source.other_files) and all(
        (folder / path).is_file() for path in source.other_files
    )


def read(folder: pathlib.Path, source: Source, path: str) -> bytes:
    """Return the content of a staged file."""
    try:
        return (folder / path).read_bytes()
    except FileNotFoundError as error:
        raise errors.DataError(_advice(source, folder)) from error
    except OSError as error:
        raise errors.DataError(f"cannot read {folder / path}: {error}.") from error


def damaged(path: pathlib.Path, why: str) -> errors.DataError:
    """Return the error for a damaged file."""
    return errors.DataError(f"{path} is damaged ({why}): remove it and stage the data set again.")


def _missing(source: Source, folder: pathlib.Path) -> list[str]:
    return [path for path in source.files if not (folder / path).is_file()]


def _names(source: Source) -> str:
    return " and ".join(pathlib.PurePath(archive.path).name for archive in source.archives)


def _advice(source: Source, folder: pathlib.Path) -> str:
    lines = [f"{source.title} is not in {folder}. Either"]
    lines.append(f"  put its files there: {source.files[0]}, ... ({len(source.files)} files), or")
    lines += [f"  put {folder / each.path} there, from {each.address}" for each in source.archives]
    lines.append("or set its folder with --data-dir FOLDER (or DATA_DIR in the environment).")
    if all(archive.md5 for archive in source.archives):
        lines.append("On a machine with network access, --download downloads it.")
    return "\n".join(lines)


def _find(source: Source, archive: Archive, folder: pathlib.Path, *, download: bool) -> None:
    """Ensure that the archive exists and matches the published checksum."""
    path = folder / archive.path
    if not path.is_file():
        if not download:
            raise errors.DataError(_advice(source, folder))
        if not archive.md5:
            raise errors.DataError(
                f"{source.title} is published without a checksum, so it is not downloaded."
                f"\n{_advice(source, folder)}"
            )
        _fetch(archive, path)
    elif archive.md5:
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, "md5").hexdigest()
        if md5 != archive.md5:
            raise damaged(path, f"MD5 {md5}, published {archive.md5}")


def _fetch(archive: Archive, path: pathlib.Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with _replacement(path) as file:
        try:
            with urllib.request.urlopen(archive.address, timeout=SILENCE_SECONDS) as response:
                while block := response.read(BLOCK_BYTES):
                    digest.update(block)
                    file.write(block)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise errors.DataError(
                f"cannot download {archive.address} ({error}): download it on a machine with"
                f" network access and put it at {path}."
            ) from error
        if digest.hexdigest() != archive.md5:
            raise errors.DataError(
                f"checksum mismatch of {archive.address} (MD5 {digest.hexdigest()}, published"
                f" {archive.md5}): download it manually and put it at {path}."
            )


def _unpack(source: Source, archive: Archive, folder: pathlib.Path) -> None:
    path = folder / archive.path
    try:
        if archive.path.endswith(".zip"):
            with zipfile.ZipFile(path) as members:
                for name in set(source.files) & set(members.namelist()):
                    with members.open(name) as content:
                        _put(content, folder / name)
        elif archive.path.endswith(".tar.gz"):
            with tarfile.open(path) as members:
                for member in members:
                    content = members.extractfile(member) if member.name in source.files else None
                    if content is not None:
                        _put(content, folder / member.name)
        else:
            with gzip.open(path) as content:
                _put(content, folder / archive.path.removesuffix(".gz"))
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise damaged(path, str(error)) from error


def _put(content: IO[bytes], path: pathlib.Path) -> None:
    with _replacement(path) as file:
        shutil.copyfileobj(content, file, BLOCK_BYTES)


@contextlib.contextmanager
def _replacement(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when it is complete, and is removed on error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock(path: pathlib.Path) -> Iterator[None]:
    with path.open("a") as file:
        # Not supported by Lustre without flock and some FUSE file systems: the renames suffice.
        with contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield
