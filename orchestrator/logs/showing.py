"""The end of a log, and what is added to it, for people."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator

from orchestrator import errors
from orchestrator.logs import files

_BLOCK_BYTES = 64 * 1024


def tail(path: str, lines: int | None = 10) -> Iterator[str]:
    """Yield the last lines (None: all), each with its line end; the last one may have none.

    A line longer than 64 KiB comes in pieces. Raises NotFoundError where there is no log.
    """
    handle = _open(path)
    try:
        offset = 0 if lines is None else _tail_offset(handle, os.fstat(handle).st_size, lines)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""
        while data := os.pread(handle, _BLOCK_BYTES, offset):
            offset += len(data)
            pieces = list(_pieces(held + decoder.decode(data)))
            held = ""
            if pieces and not pieces[-1].endswith("\n") and len(pieces[-1]) < _BLOCK_BYTES:
                held = pieces.pop()
            yield from pieces
        yield from _pieces(held + decoder.decode(b"", final=True))
    finally:
        os.close(handle)


def follow(
    path: str,
    *,
    done: Callable[[], bool],
    wait: Callable[[float], None],
    lines: int | None = 10,
    poll_seconds: float = 1.0,
) -> Iterator[str]:
    """Yield the last lines and then what is added, until `done()` and nothing is left.

    `wait` is called with the seconds to the next look. The log may come later, shrink, or be
    replaced by another file; text comes as soon as it is there, so a piece may lack its line end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    inode: int | None = None
    offset = 0
    first = True
    while True:
        # Asked before reading: what was written before the end is then read for certain.
        ended = done()
        try:
            handle, status = files.open_log(path)
        except OSError:
            pass
        else:
            try:
                if first and lines is not None:
                    offset = _tail_offset(handle, status.st_size, lines)
                elif status.st_ino != inode or status.st_size < offset:
                    offset = 0
                    decoder.reset()
                inode = status.st_ino
                while data := _block(handle, offset):
                    offset += len(data)
                    yield from _pieces(decoder.decode(data))
            finally:
                os.close(handle)
        first = False
        if ended:
            yield from _pieces(decoder.decode(b"", final=True))
            return
        wait(poll_seconds)


def _open(path: str) -> int:
    try:
        return files.open_log(path)[0]
    except FileNotFoundError as error:
        message = f"{files.NO_LOG_YET}: {path} appears when the job starts"
        raise errors.NotFoundError(message) from error
    except OSError as error:
        raise errors.OrchestratorError(f"cannot read {path}: {error.strerror or error}") from error


def _block(handle: int, offset: int) -> bytes:
    try:
        return os.pread(handle, _BLOCK_BYTES, offset)
    except OSError:
        # ESTALE of NFS and the like: the next look opens the file anew.
        return b""


def _tail_offset(handle: int, size: int, lines: int) -> int:
    """Return where the last `lines` lines begin, found from the end by blocks."""
    if lines <= 0:
        return size
    # The line end that closes the file begins no further line.
    end = size - 1 if size and os.pread(handle, 1, size - 1) == b"\n" else size
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        data = os.pread(handle, end - start, start)
        found = data.count(b"\n")
        if found >= lines:
            index = len(data)
            for _ in range(lines):
                index = data.rfind(b"\n", 0, index)
            return start + index + 1
        lines -= found
        end = start
    return 0


def _pieces(text: str) -> Iterator[str]:
    # Not splitlines(): it also cuts at form feeds, U+2028 and lone carriage returns.
    begin = 0
    while (end := text.find("\n", begin)) >= 0:
        yield text[begin : end + 1]
        begin = end + 1
    if begin < len(text):
        yield text[begin:]
