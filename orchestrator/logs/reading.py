"""Reads a log from where the last read ended, each line once, in bounded memory."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from orchestrator.logs import files, lines
from orchestrator.metrics import LogCursor

#: One call of `read` reads at most this.
READ_LIMIT_BYTES = 64 * 1024 * 1024
#: One call stops after lines of this size or number. Their text may need four times as much memory,
#: and what is made of them as much again: together less than 64 MiB.
_KEPT_LIMIT_BYTES = 2 * 1024 * 1024
_KEPT_LIMIT_LINES = 20_000

_BLOCK_BYTES = 256 * 1024
_HEAD_BYTES = 256
_BEFORE_BYTES = 64

#: Finds candidate lines: block -> positions behind a byte of each, in order.
Search: TypeAlias = Callable[[bytes], Sequence[int]]


class Line(NamedTuple):
    """A line, or a part of one between carriage returns."""

    #: from 1; parts of a line share it
    number: int
    #: without line end and escape sequences; U+FFFD for invalid UTF-8
    text: str
    #: that printed it; None: before the first banner
    attempt: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    #: without blank lines
    lines: list[Line]
    #: where the next read begins
    cursor: LogCursor
    #: there is more to read now
    more: bool = False
    #: a message for the user, such as "no log yet"; "": none
    note: str = ""
    read_bytes: int = 0


def read(
    cursor: LogCursor,
    *,
    banner: re.Pattern[str] | None = None,
    final: bool = False,
    limit_bytes: int = READ_LIMIT_BYTES,
    search: Search | None = None,
) -> Chunk:
    """Return the lines since `cursor`. Call it again while the result has `more`.

    A missing or unreadable log is no error: `note` says so, and the cursor stays.

    Args:
        final: the job has ended: return an unfinished last line, too.
        search: return only lines that it finds. It must find banners.
    """
    reader = _Reader(banner=banner, limit_bytes=limit_bytes, search=search)
    try:
        with contextlib.ExitStack() as stack:
            handle, status = stack.enter_context(files.opened(cursor.path))
            # A log that logrotate copied and truncated continues with the same attempt.
            beginning = LogCursor(
                path=cursor.path,
                device=status.st_dev,
                inode=status.st_ino,
                attempt=cursor.attempt,
                matching=cursor.matching,
            )
            if not cursor.inode:
                return reader.read(handle, beginning, final=final)
            if _is_same(handle, status, cursor):
                return reader.read(handle, cursor, final=final)
            # Slurm keeps a job's log open: after a rename by logrotate it still writes to the old
            # file, and the new one stays empty.
            stay = status.st_size == 0
            old_handle = _open_rotated(cursor, stack)
            if old_handle is not None:
                chunk = reader.read(old_handle, cursor, final=final or not stay)
                if chunk.more or stay:
                    return chunk
                following = dataclasses.replace(beginning, attempt=chunk.cursor.attempt)
                note = f"{cursor.path} was rotated: read to the end of {cursor.path}.1"
                return dataclasses.replace(chunk, cursor=following, more=True, note=note)
            if _is_copy(handle, status, cursor):
                moved = dataclasses.replace(cursor, device=status.st_dev, inode=status.st_ino)
                return reader.read(handle, moved, final=final)
            how = "truncated" if status.st_size < cursor.offset_bytes else "replaced"
            chunk = reader.read(handle, beginning, final=final)
            note = f"{cursor.path} was {how}: read again from its beginning"
            return dataclasses.replace(chunk, note=note)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            note = f"cannot read {cursor.path}: {error.strerror or error}"
        elif cursor.inode:
            note = f"{cursor.path} is gone; it was read up to byte {cursor.offset_bytes}"
        else:
            note = files.NO_LOG_YET
        return Chunk(lines=[], cursor=cursor, note=note)


def unread_bytes(path: str, offset_bytes: int) -> int:
    """Return the size of the file behind the offset; 0 if it cannot be read."""
    try:
        return max(0, os.stat(path).st_size - offset_bytes)
    except OSError:
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reader:
    banner: re.Pattern[str] | None
    limit_bytes: int
    search: Search | None

    def read(self, handle: int, cursor: LogCursor, *, final: bool) -> Chunk:
        kept: list[Line] = []
        read_bytes = kept_bytes = 0
        more, moved = True, False
        while more and read_bytes < self.limit_bytes:
            if kept_bytes >= _KEPT_LIMIT_BYTES or len(kept) >= _KEPT_LIMIT_LINES:
                break
            # One byte more than a line may have: otherwise a long line would wait for its end.
            size = max(lines.LINE_CAP_BYTES + 1, min(_BLOCK_BYTES, self.limit_bytes - read_bytes))
            data = os.pread(handle, size, cursor.offset_bytes)
            more = len(data) == size
            hole_bytes = files.hole_bytes(handle, cursor.offset_bytes, data) if more else 0
            if hole_bytes:
                end = cursor.offset_bytes + hole_bytes
                cursor = dataclasses.replace(cursor, offset_bytes=end, skipping=False)
                moved = True
                continue
            whole = 0 if cursor.skipping else data.rfind(b"\n") + 1
            if self.search is not None and whole:
                # The unfinished line is read again with the next block.
                more = more or whole < len(data)
                data = data[:whole]
                part = lines.split_at(data, self.search(data), line=cursor.line)
            else:
                flush = final and not more
                part = lines.split(data, line=cursor.line, skipping=cursor.skipping, flush=flush)
            attempt, banner = self._add(part.segments, cursor, kept)
            read_bytes += part.consumed_bytes
            kept_bytes += sum([len(raw) for _, raw in part.segments])
            cursor = dataclasses.replace(
                cursor,
                offset_bytes=cursor.offset_bytes + part.consumed_bytes,
                line=part.line,
                attempt=attempt,
                banner=banner,
                skipping=part.skipping,
            )
        if read_bytes or moved:
            digest = _fingerprint(handle, cursor.offset_bytes)
            cursor = dataclasses.replace(cursor, fingerprint=digest)
        return Chunk(lines=kept, cursor=cursor, more=more, read_bytes=read_bytes)

    def _add(
        self, segments: list[tuple[int, bytes]], cursor: LogCursor, kept: list[Line]
    ) -> tuple[int | None, int]:
        """Append lines to `kept`; return the attempt and the highest banner behind them."""
        attempt, highest = cursor.attempt, cursor.banner
        for number, raw in segments:
            text = lines.clean(raw)
            if not text or text.isspace():
                continue
            if self.banner is not None and text.startswith(lines.BANNER_START):
                match = self.banner.fullmatch(text)
                # Attempts only go up: a job that prints its old log begins no new attempt.
                if match and int(match["attempt"]) > highest:
                    attempt = highest = int(match["attempt"])
            kept.append(Line(number, text, attempt))
        return attempt, highest


def _open_rotated(cursor: LogCursor, stack: contextlib.ExitStack) -> int | None:
    """Open `PATH.1` until the end of the stack, if that is the file of the cursor."""
    try:
        handle, status = stack.enter_context(files.opened(f"{cursor.path}.1"))
    except OSError:
        return None
    is_file = _is_same(handle, status, cursor) or _is_copy(handle, status, cursor)
    return handle if is_file else None


def _is_same(handle: int, status: os.stat_result, cursor: LogCursor) -> bool:
    """Tell whether the open file is the one of `cursor`, neither truncated nor rewritten."""
    # Neither number is proof: on NFS st_dev differs between hosts, and ext4 reuses the inode of a
    # deleted file at once.
    if status.st_ino != cursor.inode or status.st_size < cursor.offset_bytes:
        return False
    if not cursor.fingerprint:
        return status.st_dev == cursor.device or cursor.offset_bytes == 0
    return _fingerprint(handle, cursor.offset_bytes) in (cursor.fingerprint, "")


def _is_copy(handle: int, status: os.stat_result, cursor: LogCursor) -> bool:
    """Tell whether another file has the same content: restored, or copied by copytruncate."""
    is_long = status.st_size >= cursor.offset_bytes >= _HEAD_BYTES + _BEFORE_BYTES
    if not cursor.fingerprint or not is_long:
        return False
    return _fingerprint(handle, cursor.offset_bytes) == cursor.fingerprint


def _fingerprint(handle: int, offset_bytes: int) -> str:
    """Return a digest of the file's first bytes and of the bytes before the offset.

    "" if they contain NUL: that may be a hole of the file system, which is filled later.
    """
    head = os.pread(handle, min(_HEAD_BYTES, offset_bytes), 0)
    start = max(0, offset_bytes - _BEFORE_BYTES)
    before = os.pread(handle, offset_bytes - start, start)
    if not head or b"\0" in head or b"\0" in before:
        return ""
    return hashlib.blake2b(head + before, digest_size=8).hexdigest()
