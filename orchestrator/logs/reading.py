"""Reads a log from where the last read ended, each line once, in bounded memory."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from orchestrator.logs import files, lines

#: One call of `read` reads at most this.
READ_LIMIT_BYTES = 64 * 1024 * 1024
#: One call stops after lines of this size or number. Their text may need four times as much memory,
#: and what is made of them as much again: together less than 64 MiB.
_KEPT_LIMIT_BYTES = 2 * 1024 * 1024
_KEPT_LIMIT_LINES = 20_000
#: From this size a search is worth its start-up time of 0.1 s.
_SEARCH_BYTES = 1024 * 1024

_BLOCK_BYTES = 256 * 1024
_HEAD_BYTES = 256
_BEFORE_BYTES = 64

#: Finds candidate lines: block -> positions behind a byte of each, in order.
Search: TypeAlias = Callable[[bytes], Sequence[int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """How far a log has been read. It is stored in one transaction with what was found."""

    path: str
    #: st_dev and st_ino; None: the file was never seen
    device: int | None = None
    inode: int | None = None
    #: next byte to read
    offset_bytes: int = 0
    #: line ends so far
    line: int = 0
    #: of the next line; None: no banner so far
    attempt: int | None = None
    #: highest attempt with a banner in this file; -1: none
    banner: int = -1
    #: skip the rest of a line: it is too long, or its beginning was already returned
    skipping: bool = False
    #: digest that detects a file with other content and the same inode; "": unknown
    fingerprint: str = ""

    @property
    def carry(self) -> dict[str, int | str | bool | None]:
        """The fields without a database column of their own, ready for JSON."""
        return {name: getattr(self, name) for name in _CARRIED}

    @classmethod
    def resume(cls, carry: Mapping[str, Any], **fields: Any) -> Position:
        """Return a stored position. Values of other types in `carry` are ignored."""
        carried = {
            name: carry[name]
            for name, types in _CARRIED.items()
            if name in carry and type(carry[name]) in types
        }
        return cls(**carried, **fields)


_CARRIED = {
    "attempt": (int, type(None)),
    "banner": (int,),
    "skipping": (bool,),
    "fingerprint": (str,),
}


class Line(NamedTuple):
    """A line, or a part of one between carriage returns."""

    #: from 1; parts of a line share it
    number: int
    #: without line end and escape sequences; U+FFFD for invalid UTF-8
    text: str
    offset_bytes: int
    #: that printed it; None: before the first banner
    attempt: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """The result of one `read`."""

    #: without blank lines
    lines: list[Line]
    #: where the next read begins
    position: Position
    #: there is more to read now
    more: bool = False
    #: the file that was read: the log, or its old part after a rotation
    path: str
    #: a message for the user, such as "no log yet"; "": none
    note: str = ""
    read_bytes: int = 0


def read(
    position: Position,
    *,
    banner: re.Pattern[str] | None = None,
    final: bool = False,
    limit_bytes: int = READ_LIMIT_BYTES,
    line_cap_bytes: int = lines.LINE_CAP_BYTES,
    search: Search | None = None,
) -> Chunk:
    """Return the lines since `position`. Call it again while the result has `more`.

    A missing or unreadable log is no error: `note` says so, and the position stays.

    Args:
        final: the job has ended: return an unfinished last line, too.
        search: return only lines that it finds. It must find banners.
    """
    reader = _Reader(
        banner=banner, limit_bytes=limit_bytes, line_cap_bytes=line_cap_bytes, search=search
    )
    try:
        handle, status = files.open_log(position.path)
    except OSError as error:
        return _unreadable(position, error)
    try:
        # A log that logrotate copied and truncated continues with the same attempt.
        beginning = Position(
            path=position.path,
            device=status.st_dev,
            inode=status.st_ino,
            attempt=position.attempt,
        )
        if position.inode is None:
            return reader.read(handle, beginning, position.path, final=final)
        if _is_same(handle, status, position):
            return reader.read(handle, position, position.path, final=final)
        # Slurm keeps a job's log open: after a rename by logrotate it still writes to the old file,
        # and the new one stays empty.
        stay = status.st_size == 0
        rotated = _read_rotated(reader, position, beginning, stay=stay, final=final)
        if rotated is not None:
            return rotated
        if _is_copy(handle, status, position):
            moved = dataclasses.replace(position, device=status.st_dev, inode=status.st_ino)
            return reader.read(handle, moved, position.path, final=final)
        how = "truncated" if status.st_size < position.offset_bytes else "replaced"
        chunk = reader.read(handle, beginning, position.path, final=final)
        note = f"{position.path} was {how}: read again from its beginning"
        return dataclasses.replace(chunk, note=note)
    except OSError as error:
        return _unreadable(position, error)
    finally:
        os.close(handle)


def is_large(position: Position) -> bool:
    """Tell whether so much is unread that a search pays off."""
    return unread_bytes(position.path, position.offset_bytes) >= _SEARCH_BYTES


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
    line_cap_bytes: int
    search: Search | None

    def read(self, handle: int, position: Position, path: str, *, final: bool) -> Chunk:
        found: list[Line] = []
        read_bytes = kept_bytes = 0
        more, moved = True, False
        while more and read_bytes < self.limit_bytes:
            if kept_bytes >= _KEPT_LIMIT_BYTES or len(found) >= _KEPT_LIMIT_LINES:
                break
            # One byte more than a line may have: otherwise a long line would wait for its end.
            size = max(self.line_cap_bytes + 1, min(_BLOCK_BYTES, self.limit_bytes - read_bytes))
            data = os.pread(handle, size, position.offset_bytes)
            more = len(data) == size
            hole_bytes = files.hole_bytes(handle, position.offset_bytes, data) if more else 0
            if hole_bytes:
                end = position.offset_bytes + hole_bytes
                position = dataclasses.replace(position, offset_bytes=end, skipping=False)
                moved = True
                continue
            whole = 0 if position.skipping else data.rfind(b"\n") + 1
            if self.search is not None and whole:
                # The unfinished line is read again with the next block.
                more = more or whole < len(data)
                data = data[:whole]
                part = lines.split_at(
                    data,
                    self.search(data),
                    offset_bytes=position.offset_bytes,
                    line=position.line,
                    line_cap_bytes=self.line_cap_bytes,
                )
            else:
                part = lines.split(
                    data,
                    offset_bytes=position.offset_bytes,
                    line=position.line,
                    skipping=position.skipping,
                    flush=final and not more,
                    line_cap_bytes=self.line_cap_bytes,
                )
            attempt, banner = self._add(part.segments, position, found)
            read_bytes += part.consumed_bytes
            kept_bytes += sum([len(segment.raw) for segment in part.segments])
            position = dataclasses.replace(
                position,
                offset_bytes=position.offset_bytes + part.consumed_bytes,
                line=part.line,
                attempt=attempt,
                banner=banner,
                skipping=part.skipping,
            )
        if read_bytes or moved:
            digest = _fingerprint(handle, position.offset_bytes)
            position = dataclasses.replace(position, fingerprint=digest)
        return Chunk(lines=found, position=position, more=more, path=path, read_bytes=read_bytes)

    def _add(
        self, segments: list[lines.Segment], position: Position, found: list[Line]
    ) -> tuple[int | None, int]:
        """Append lines to `found`; return the attempt and the highest banner behind them."""
        attempt, highest = position.attempt, position.banner
        for number, offset_bytes, raw in segments:
            text = lines.clean(raw)
            if not text or text.isspace():
                continue
            if self.banner is not None and text.startswith(lines.BANNER_START):
                match = self.banner.fullmatch(text)
                # Attempts only go up: a job that prints its old log begins no new attempt.
                if match and int(match["attempt"]) > highest:
                    attempt = highest = int(match["attempt"])
            found.append(Line(number, text, offset_bytes, attempt))
        return attempt, highest


def _read_rotated(
    reader: _Reader, position: Position, beginning: Position, *, stay: bool, final: bool
) -> Chunk | None:
    """Read the rest of `PATH.1` if that is the file of `position`, then switch to the new file.

    stay: the new file is empty, and the old one may grow.
    """
    path = f"{position.path}.1"
    try:
        handle, status = files.open_log(path)
    except OSError:
        return None
    try:
        if not _is_same(handle, status, position) and not _is_copy(handle, status, position):
            return None
        chunk = reader.read(handle, position, path, final=final or not stay)
    finally:
        os.close(handle)
    if chunk.more or stay:
        return chunk
    following = dataclasses.replace(beginning, attempt=chunk.position.attempt)
    note = f"{position.path} was rotated: read to the end of {path}"
    return dataclasses.replace(chunk, position=following, more=True, note=note)


def _unreadable(position: Position, error: OSError) -> Chunk:
    if not isinstance(error, FileNotFoundError):
        note = f"cannot read {position.path}: {error.strerror or error}"
    elif position.inode is None:
        note = files.NO_LOG_YET
    else:
        note = f"{position.path} is gone; it was read up to byte {position.offset_bytes}"
    return Chunk(lines=[], position=position, path=position.path, note=note)


def _is_same(handle: int, status: os.stat_result, position: Position) -> bool:
    """Tell whether the open file is the one of `position`, neither truncated nor rewritten."""
    # Neither number is proof: on NFS st_dev differs between hosts, and ext4 reuses the inode of a
    # deleted file at once.
    if status.st_ino != position.inode or status.st_size < position.offset_bytes:
        return False
    if not position.fingerprint:
        return status.st_dev == position.device or position.offset_bytes == 0
    return _fingerprint(handle, position.offset_bytes) in (position.fingerprint, "")


def _is_copy(handle: int, status: os.stat_result, position: Position) -> bool:
    """Tell whether another file has the same content: restored, or copied by copytruncate."""
    if not position.fingerprint or position.offset_bytes < _HEAD_BYTES + _BEFORE_BYTES:
        return False
    if status.st_size < position.offset_bytes:
        return False
    return _fingerprint(handle, position.offset_bytes) == position.fingerprint


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
