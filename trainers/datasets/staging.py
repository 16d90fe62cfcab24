"""A data set's files: found, unpacked or fetched, once, however many processes ask at once.

Each file comes into its place by a rename, so what has its name is whole. Who unpacks holds a lock;
where the file system has no locks, two do the same work and the result is the same.
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

# A server that says nothing for so long is taken for lost.
SILENCE_SECONDS = 60
BLOCK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """A file as its publisher gives it out."""

    #: Its place under the folder of data sets.
    path: str
    #: Where it is published.
    address: str
    #: MD5 as published, 32 digits; empty where none is, and then it is never fetched.
    md5: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The files of one data set."""

    #: What people call it.
    title: str
    #: What a loader reads, as places under the folder of data sets.
    files: tuple[str, ...]
    #: What they come out of.
    archives: tuple[Archive, ...]
    #: Other files that the loader reads just as well, if all of them are there.
    other_files: tuple[str, ...] = ()


def stage(source: Source, folder: pathlib.Path, *, download: bool) -> None:
    """See to it that all files of a data set are there.

    Raises DataError, which says what to put where, when they are not and can't be.
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
            f"{source.title} can't be put into {folder}: {error}."
            " Make room, or name another folder with --data-dir."
        ) from error
    if missing := _missing(source, folder):
        raise errors.DataError(
            f"{_names(source)} in {folder} lacks {', '.join(missing)}: fetch it anew."
        )


def has_other_files(source: Source, folder: pathlib.Path) -> bool:
    """Return whether the data set is there in its other form."""
    return bool(source.other_files) and all(
        (folder / path).is_file() for path in source.other_files
    )


def read(folder: pathlib.Path, source: Source, path: str) -> bytes:
    """Return a staged file's content."""
    try:
        return (folder / path).read_bytes()
    except FileNotFoundError as error:
        raise errors.DataError(_advice(source, folder)) from error
    except OSError as error:
        raise errors.DataError(f"{folder / path} can't be read: {error}.") from error


def damaged(path: pathlib.Path, why: str) -> errors.DataError:
    """Return the error for a file that does not hold what it should."""
    return errors.DataError(f"{path} is damaged ({why}): remove it and stage the data set anew.")


def _missing(source: Source, folder: pathlib.Path) -> list[str]:
    return [path for path in source.files if not (folder / path).is_file()]


def _names(source: Source) -> str:
    return " and ".join(pathlib.PurePath(archive.path).name for archive in source.archives)


def _advice(source: Source, folder: pathlib.Path) -> str:
    lines = [f"{source.title} is not in {folder}. Either"]
    lines.append(f"  put its files there: {source.files[0]}, ... ({len(source.files)} files), or")
    lines += [f"  put {folder / each.path} there, from {each.address}" for each in source.archives]
    lines.append(
        "or name the folder where it is: --data-dir FOLDER (or DATA_DIR in the environment)."
    )
    if all(archive.md5 for archive in source.archives):
        lines.append("On a machine with a network --download fetches it.")
    return "\n".join(lines)


def _find(source: Source, archive: Archive, folder: pathlib.Path, *, download: bool) -> None:
    """Have the archive in its place, with its published checksum."""
    path = folder / archive.path
    if not path.is_file():
        if not download:
            raise errors.DataError(_advice(source, folder))
        if not archive.md5:
            raise errors.DataError(
                f"{source.title} is published without a checksum, so it is not fetched."
                f"\n{_advice(source, folder)}"
            )
        _fetch(archive, path)
    elif archive.md5:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != archive.md5:
            raise damaged(path, f"MD5 {found}, published {archive.md5}")


def _fetch(archive: Archive, path: pathlib.Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with _replacement(path) as file:
        try:
            with urllib.request.urlopen(archive.address, timeout=SILENCE_SECONDS) as answer:
                while block := answer.read(BLOCK_BYTES):
                    digest.update(block)
                    file.write(block)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise errors.DataError(
                f"{archive.address} can't be fetched ({error}): fetch it on a machine with a"
                f" network and put it at {path}."
            ) from error
        if digest.hexdigest() != archive.md5:
            raise errors.DataError(
                f"{archive.address} gave other data than is published (MD5 {digest.hexdigest()},"
                f" published {archive.md5}): fetch it by hand and put it at {path}."
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
    """Give a new file that comes into its place when it is whole, and leaves nothing else."""
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
        # Lustre without flock and some FUSE file systems refuse: the renames suffice then.
        with contextlib.suppress(OSError):
            fcntl.lockf(file, fcntl.LOCK_EX)
        yield
