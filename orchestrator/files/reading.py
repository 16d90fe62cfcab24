"""Opening and reading of files that a job, or another user, may have replaced.

A FIFO blocks its reader until somebody writes to it, a device such as /dev/zero never ends, and a
sparse file of a terabyte fits on any disk. All three can be put wherever a job can write.
"""

from __future__ import annotations

import datetime
import errno
import os
import select
import stat
from typing import BinaryIO, TypeAlias

_Path: TypeAlias = str | os.PathLike[str]

_KINDS = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFSOCK: "socket",
    stat.S_IFDIR: "folder",
}
# O_NONBLOCK: open(2) of a FIFO does not wait for a writer; reading a regular file ignores it.
# O_NOCTTY: a terminal does not become the controlling one.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

#: Times that the database can store.
_FIRST, _LAST = (datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1970, 2999))

#: Time to wait for a FIFO that the user named.
_FIFO_TIMEOUT_SECONDS = 5


class NotRegularFileError(OSError):
    """The path leads to a FIFO, a device, a socket or a folder."""


class TooLargeError(OSError):
    """The file is larger than its reader accepts."""


def open_descriptor(path: _Path, *, is_given: bool = False) -> int:
    """Open a regular file for reading, without blocking, and return its descriptor.

    is_given: the user named it on the command line; then also a pipe, `<(...)` or /dev/stdin.

    Raises NotRegularFileError for anything else and for a FIFO that nobody writes to, OSError if it
    cannot be opened and ValueError for a NUL character in the path.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        message = ""
        if kind in (stat.S_IFDIR, stat.S_IFBLK) or (not is_given and kind != stat.S_IFREG):
            message = f"not a regular file but a {_KINDS.get(kind, 'special file')}"
        elif kind == stat.S_IFIFO and _is_silent(descriptor):
            message = f"a FIFO to which nothing was written for {_FIFO_TIMEOUT_SECONDS} s"
        if message:
            raise NotRegularFileError(errno.EINVAL, message, os.fspath(path))
        if is_given:
            os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_silent(descriptor: int) -> bool:
    # The pipe of `<(...)` ends with its writer.
    if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(_FIFO_TIMEOUT_SECONDS * 1000)


def open_regular(path: _Path, *, is_given: bool = False) -> BinaryIO:
    """Open a file for reading. Raises what open_descriptor() raises."""
    return open(open_descriptor(path, is_given=is_given), "rb")


def read_bytes(path: _Path, *, limit_bytes: int, is_given: bool = False) -> bytes:
    """Return the content of a file.

    Raises TooLargeError beyond `limit_bytes`, and what open_descriptor() raises.
    """
    with open_regular(path, is_given=is_given) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise TooLargeError(errno.EFBIG, f"larger than {limit_bytes} bytes", os.fspath(path))
    return content


def read_text(path: _Path, *, limit_bytes: int, errors: str = "strict") -> str:
    """Return the UTF-8 text of a regular file. `errors` is that of bytes.decode().

    Raises what read_bytes() raises.
    """
    return read_bytes(path, limit_bytes=limit_bytes).decode("utf-8", errors=errors)


def time_of(stamp: float) -> datetime.datetime:
    """Return a file's time, limited to 1970 to 2999: `touch` may set any time."""
    first, last = _FIRST.timestamp(), _LAST.timestamp()
    return datetime.datetime.fromtimestamp(min(max(stamp, first), last), datetime.UTC)


def interpreter(script: str) -> list[str]:
    """Return the words that the kernel puts before a script's path (man execve): none to two."""
    first = script.partition("\n")[0]
    return first[2:].strip(" \t").split(None, 1) if first.startswith("#!") else []
