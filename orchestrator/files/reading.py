"""Open and read files that a job, or another user, may have replaced by something else.

A FIFO blocks its reader until somebody writes to it, a device such as /dev/zero never ends, and a
sparse file of a terabyte fits on any disk. All three can be put wherever a job can write.
"""

from __future__ import annotations

import datetime
import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFSOCK: "socket",
    stat.S_IFDIR: "folder",
}
# O_NONBLOCK: open(2) of a FIFO does not wait for a writer, and reading a regular file ignores it.
# O_NOCTTY: a terminal does not become ours.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

#: Times that the database stores, too.
_FIRST, _LAST = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1970, 2999))

#: A FIFO that the user named is waited for so long.
_FIFO_TIMEOUT_SECONDS = 5


class NotRegularFileError(OSError):
    """The path leads to a FIFO, a device, a socket or a folder."""


class TooLargeError(OSError):
    """The file is larger than its reader accepts."""


def open_descriptor(path: str | os.PathLike[str]) -> int:
    """Open a regular file for reading, without ever blocking, and return its descriptor.

    Raises NotRegularFileError for anything else, OSError when it cannot be opened and ValueError
    for a NUL character in the path.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            message = f"not a regular file but a {_KINDS.get(kind, 'special file')}"
            raise NotRegularFileError(errno.EINVAL, message, os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; raises what open_descriptor() raises."""
    return open(open_descriptor(path), "rb")


def read_bytes(path: str | os.PathLike[str], *, limit_bytes: int) -> bytes:
    """Return the content of a regular file of at most `limit_bytes`.

    Raises TooLargeError beyond that, and what open_regular() raises.
    """
    with open_regular(path) as file:
        return _bounded(file, path, limit_bytes)


def open_given(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file that the user named on the command line: a pipe, `<(...)` or /dev/stdin too.

    Raises NotRegularFileError for a folder, a block device and a FIFO that nobody writes to, and
    OSError when it cannot be opened.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind in (stat.S_IFDIR, stat.S_IFBLK):
            message = f"not a regular file but a {_KINDS[kind]}"
            raise NotRegularFileError(errno.EINVAL, message, os.fspath(path))
        if kind == stat.S_IFIFO and _is_silent(descriptor):
            message = f"a FIFO to which nothing was written for {_FIFO_TIMEOUT_SECONDS} s"
            raise NotRegularFileError(errno.EINVAL, message, os.fspath(path))
        os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_given(path: str | os.PathLike[str], *, limit_bytes: int) -> bytes:
    """Return the content of a file that the user named on the command line.

    Raises TooLargeError beyond `limit_bytes`, and what open_given() raises.
    """
    with open_given(path) as file:
        return _bounded(file, path, limit_bytes)


def time_of(stamp: float) -> datetime.datetime:
    """Return the time of a file's stamp, between 1970 and 2999: `touch` may set it to any."""
    first, last = _FIRST.timestamp(), _LAST.timestamp()
    return datetime.datetime.fromtimestamp(min(max(stamp, first), last), datetime.UTC)


def _is_silent(descriptor: int) -> bool:
    """Tell whether nothing is written to a FIFO; the pipe of `<(...)` ends with its writer."""
    if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(_FIFO_TIMEOUT_SECONDS * 1000)


def _bounded(file: BinaryIO, path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        message = f"larger than {limit_bytes} bytes"
        raise TooLargeError(errno.EFBIG, message, os.fspath(path))
    return content


def read_text(path: str | os.PathLike[str], *, limit_bytes: int, errors: str = "strict") -> str:
    """Return the UTF-8 text of a regular file; UnicodeDecodeError as `errors` says.

    Raises what read_bytes() raises.
    """
    return read_bytes(Path(path), limit_bytes=limit_bytes).decode("utf-8", errors=errors)
