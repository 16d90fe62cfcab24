"""Reads the end of a log, and makes its text safe for a terminal."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Iterator

from orchestrator.logs import files
from orchestrator.logs.lines import LINE_CAP_BYTES, safe

BLOCK_BYTES = 64 * 1024
#: The last lines are looked for in the last 64 MiB, and 16 KiB more for each line.
_MAX_TAIL_BYTES = 64 * 1024 * 1024


def tail(
    path: str, lines: int | None = 10, begin_bytes: int = 0, end_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield the last lines (None: all) of a part of a file, in blocks of 64 KiB.

    Without `end_bytes` it ends where the file ends, which may grow. Raises NotFoundError.
    """
    with files.existing(path) as (handle, status):
        offset = begin_bytes
        if lines is not None:
            end = status.st_size if end_bytes is None else end_bytes
            offset = max(tail_offset(handle, end, lines), begin_bytes)
        limit = sys.maxsize if end_bytes is None else end_bytes
        while data := os.pread(handle, min(BLOCK_BYTES, max(0, limit - offset)), offset):
            offset += len(data)
            yield data


def tail_offset(handle: int, size: int, lines: int) -> int:
    """Return the offset of the last `lines` lines. A sparse file may have a terabyte without one:
    the search stops after _MAX_TAIL_BYTES.
    """
    if lines <= 0:
        return size
    # A line end at the end of the file begins no further line.
    end = size - 1 if size and os.pread(handle, 1, size - 1) == b"\n" else size
    limit = max(0, size - _MAX_TAIL_BYTES - lines * LINE_CAP_BYTES)
    while end > limit:
        start = max(limit, end - BLOCK_BYTES)
        data = os.pread(handle, end - start, start)
        count = data.count(b"\n")
        if count >= lines:
            index = len(data)
            for _ in range(lines):
                index = data.rfind(b"\n", 0, index)
            return start + index + 1
        lines -= count
        end = start
    return limit


def for_terminal(blocks: Iterable[bytes], *, hold: bool) -> Iterator[str]:
    """Yield the text of a log, safe for a terminal.

    hold: an unfinished line waits for its end, up to 64 KiB, so that no escape sequence is split.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    for block in blocks:
        text = held + decoder.decode(block)
        cut = text.rfind("\n") + 1 if hold else len(text)
        if len(text) - cut >= BLOCK_BYTES:
            cut = len(text)
        held = text[cut:]
        if cut:
            yield safe(text[:cut])
    if rest := held + decoder.decode(b"", final=True):
        yield safe(rest)
