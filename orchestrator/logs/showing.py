"""The end of a log, and what is added to it, for people."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator

from orchestrator.logs import files
from orchestrator.logs import lines as log_lines

_BLOCK_BYTES = 64 * 1024
#: The last lines are looked for in so much of a log, and more for many lines.
MOST_TAIL_BYTES = 64 * 1024 * 1024


def tail(
    path: str, lines: int | None = 10, begin_bytes: int = 0, end_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield the last lines (None: all) as they lie in the file, in blocks of 64 KiB.

    Only those between two places of the file. Raises NotFoundError where there is no log.
    """
    handle = files.existing(path)
    try:
        offset = begin_bytes
        if lines is not None:
            end = os.fstat(handle).st_size if end_bytes is None else end_bytes
            offset = max(tail_offset(handle, end, lines), begin_bytes)
        while data := os.pread(handle, _left(offset, end_bytes), offset):
            offset += len(data)
            yield data
    finally:
        os.close(handle)


def _left(offset: int, end_bytes: int | None) -> int:
    return _BLOCK_BYTES if end_bytes is None else max(0, min(_BLOCK_BYTES, end_bytes - offset))


def follow(
    path: str,
    *,
    done: Callable[[], bool],
    wait: Callable[[float], None],
    lines: int | None = 10,
    poll_seconds: float = 1.0,
) -> Iterator[bytes]:
    """Yield the last lines and then what is added, until `done()` and nothing is left.

    `wait` is called with the seconds to the next look. The log may come later, shrink, or be
    replaced by another file; bytes come as soon as they are there, so a piece may end anywhere.
    Raises NotFoundError at the end where there never was a log.
    """
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
                    offset = tail_offset(handle, status.st_size, lines)
                elif status.st_ino != inode or status.st_size < offset:
                    offset = 0
                inode = status.st_ino
                while data := block(handle, offset):
                    offset += len(data)
                    yield data
            finally:
                os.close(handle)
        first = False
        if ended:
            if inode is None:
                os.close(files.existing(path))
            return
        wait(poll_seconds)


def for_terminal(blocks: Iterable[bytes], *, hold: bool) -> Iterator[str]:
    """Yield the text of a log, in which nothing can do anything to a terminal.

    `hold`: the beginning of a line waits for its rest, up to 64 KiB, so that no escape sequence
    is cut in two; without it text comes as soon as its bytes do.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    for block in blocks:
        text = held + decoder.decode(block)
        cut = text.rfind("\n") + 1 if hold else len(text)
        if len(text) - cut >= _BLOCK_BYTES:
            cut = len(text)
        held = text[cut:]
        if cut:
            yield log_lines.safe(text[:cut])
    if rest := held + decoder.decode(b"", final=True):
        yield log_lines.safe(rest)


def block(handle: int, offset: int) -> bytes:
    try:
        return os.pread(handle, _BLOCK_BYTES, offset)
    except OSError:
        # ESTALE of NFS and the like: the next look opens the file anew.
        return b""


def tail_offset(handle: int, size: int, lines: int) -> int:
    """Return where the last `lines` lines begin, found from the end by blocks.

    No further back than 64 MiB, and 16 KiB a line: a sparse file may have a terabyte without one.
    """
    if lines <= 0:
        return size
    # The line end that closes the file begins no further line.
    end = size - 1 if size and os.pread(handle, 1, size - 1) == b"\n" else size
    least = max(0, size - MOST_TAIL_BYTES - lines * log_lines.LINE_CAP_BYTES)
    while end > least:
        start = max(least, end - _BLOCK_BYTES)
        data = os.pread(handle, end - start, start)
        found = data.count(b"\n")
        if found >= lines:
            index = len(data)
            for _ in range(lines):
                index = data.rfind(b"\n", 0, index)
            return start + index + 1
        lines -= found
        end = start
    return least
