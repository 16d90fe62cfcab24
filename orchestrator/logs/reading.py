"""Reading a log on from where the last read ended, once and only once, in bounded memory."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from orchestrator.logs import files, lines

#: Bytes one `read` takes at most.
READ_LIMIT_BYTES = 64 * 1024 * 1024
#: Bytes of lines after which `read` stops: text may need four times as much, and what is made of it
#: as much again; the sum stays under 64 MiB.
KEPT_LIMIT_BYTES = 2 * 1024 * 1024
#: Lines after which it stops, so that millions of very short ones fit in memory as well.
KEPT_LIMIT_LINES = 20_000
#: A search pays from here on.
SEARCH_BYTES = 1024 * 1024

_BLOCK_BYTES = 256 * 1024
_HEAD_BYTES = 256
_BEFORE_BYTES = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """How far a log was read; stored with the numbers found, in one transaction."""

    path: str
    #: st_dev of the file that was read
    device: int | None = None
    #: st_ino of it; none: it was never seen
    inode: int | None = None
    #: first byte not yet given out
    offset_bytes: int = 0
    #: line ends passed
    line: int = 0
    #: attempt that the next line belongs to; none: no banner was seen
    attempt: int | None = None
    #: highest attempt whose banner stands in this file; -1: none
    banner: int = -1
    #: the rest of a line is to be passed over: it was too long, or was given out unfinished
    skipping: bool = False
    #: tells a file with the same inode and other content; "": not known
    fingerprint: str = ""

    @property
    def carry(self) -> dict[str, int | str | bool | None]:
        """Return what has no column of its own, ready for JSON."""
        return {
            "attempt": self.attempt,
            "banner": self.banner,
            "skipping": self.skipping,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def resume(
        cls,
        *,
        path: str,
        device: int | None,
        inode: int | None,
        offset_bytes: int,
        line: int,
        carry: Mapping[str, object],
    ) -> Position:
        """Return a stored position; a value of `carry` that is no such value is left out."""
        attempt, banner = carry.get("attempt"), carry.get("banner")
        fingerprint = carry.get("fingerprint")
        return cls(
            path=path,
            device=device,
            inode=inode,
            offset_bytes=offset_bytes,
            line=line,
            attempt=attempt if isinstance(attempt, int) else None,
            banner=banner if isinstance(banner, int) else -1,
            skipping=carry.get("skipping") is True,
            fingerprint=fingerprint if isinstance(fingerprint, str) else "",
        )


class Line(NamedTuple):
    """A line, or a part of one between carriage returns: the states of a bar share a number."""

    #: from 1, in the file
    number: int
    #: without line end and escape sequences; invalid UTF-8 shows as U+FFFD
    text: str
    #: where it begins in the file
    offset_bytes: int
    #: attempt it was printed by; none: before the first banner
    attempt: int | None
    #: what a search found in it; none: it was not searched, anything may be in it
    marks: tuple[int, ...] | None = None


#: Finds what is worth a look: a block -> the byte behind each find, in order, and its mark. It is
#: asked of all blocks in their order.
Search: TypeAlias = Callable[[bytes], Sequence[tuple[int, int]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """What one `read` found."""

    #: in the file's order; blank ones are counted and left out
    lines: list[Line]
    #: where the next read begins
    position: Position
    #: there is more to read now
    more: bool = False
    #: the file the lines stand in: the log, or its old part after a rotation
    path: str
    #: what a person should know: no log yet, truncated, ...
    note: str = ""
    #: bytes that were taken up
    read_bytes: int = 0
    #: bytes of over-long lines that were passed over
    skipped_bytes: int = 0


def read(
    position: Position,
    *,
    banner: re.Pattern[str] | None = None,
    final: bool = False,
    limit_bytes: int = READ_LIMIT_BYTES,
    line_cap_bytes: int = lines.LINE_CAP_BYTES,
    search: Search | None = None,
) -> Chunk:
    """Return the lines added since `position`; call again while `more`.

    With `search` other lines than those it finds something in may be left out; what looks like a
    banner must be among what it finds.
    An unfinished last line waits for its end, unless `final`: the job is over. Nothing is raised
    for a log that is absent or unreadable: `note` says it, and the position stays.
    """
    reader = _Reader(
        banner=banner,
        limit_bytes=limit_bytes,
        line_cap_bytes=line_cap_bytes,
        search=search,
    )
    try:
        handle, status = files.open_log(position.path)
    except OSError as error:
        return _unread(position, error)
    try:
        begin = _beginning(position, status)
        if position.inode is None:
            return reader.read(handle, begin, position.path, final=final)
        if _is_same(handle, status, position):
            return reader.read(handle, position, position.path, final=final)
        # Slurm holds a job's log open: after a rename it goes on in the old file, and the new one
        # that logrotate makes stays empty.
        stay = status.st_size == 0
        rotated = _read_rotated(reader, position, begin, stay=stay, final=final)
        if rotated is not None:
            return rotated
        if _is_copy(handle, status, position):
            moved = dataclasses.replace(position, device=status.st_dev, inode=status.st_ino)
            return reader.read(handle, moved, position.path, final=final)
        how = "truncated" if status.st_size < position.offset_bytes else "replaced"
        chunk = reader.read(handle, begin, position.path, final=final)
        note = f"{position.path} was {how}: read again from its beginning"
        return dataclasses.replace(chunk, note=note)
    except OSError as error:
        return _unread(position, error)
    finally:
        os.close(handle)


def is_large(position: Position) -> bool:
    """Tell whether there is so much to read that a search pays: it takes 0.1 s to begin one."""
    return left_bytes(position.path, position.offset_bytes) >= SEARCH_BYTES


def left_bytes(path: str, offset_bytes: int) -> int:
    """Return how much a file has behind a place; 0 where it cannot be read."""
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
        skipped = taken = kept = 0
        more, moved = True, False
        while more and taken < self.limit_bytes:
            if kept >= KEPT_LIMIT_BYTES or len(found) >= KEPT_LIMIT_LINES:
                break
            # A byte more than a line may have, or a long line would never be seen to be long.
            size = max(self.line_cap_bytes + 1, min(_BLOCK_BYTES, self.limit_bytes - taken))
            data = os.pread(handle, size, position.offset_bytes)
            more = len(data) == size
            hole_bytes = files.hole_bytes(handle, position.offset_bytes, data) if more else 0
            if hole_bytes:
                # NUL ends a part of a line, and no line.
                end = position.offset_bytes + hole_bytes
                position = dataclasses.replace(position, offset_bytes=end, skipping=False)
                moved = True
                continue
            # Also a block that is cut line by line: what stands there may hold for later ones.
            places = None if self.search is None else self.search(data)
            whole = 0 if position.skipping else data.rfind(b"\n") + 1
            if places is not None and whole:
                # What stands behind the last line end comes again with the next block.
                more = more or whole < len(data)
                segments, line = lines.around(
                    data,
                    places,
                    whole=whole,
                    offset_bytes=position.offset_bytes,
                    line=position.line,
                    line_cap_bytes=self.line_cap_bytes,
                )
                consumed, skipping = whole, False
            else:
                part = lines.split(
                    data,
                    offset_bytes=position.offset_bytes,
                    line=position.line,
                    skipping=position.skipping,
                    flush=final and not more,
                    line_cap_bytes=self.line_cap_bytes,
                )
                segments = part.segments
                line, consumed, skipping = part.line, part.consumed_bytes, part.skipping
                skipped += part.skipped_bytes
            attempt, banner = self._add(segments, position, found)
            taken += consumed
            kept += sum([len(one.raw) for one in segments])
            position = dataclasses.replace(
                position,
                offset_bytes=position.offset_bytes + consumed,
                line=line,
                attempt=attempt,
                banner=banner,
                skipping=skipping,
            )
        if taken or moved:
            mark = _fingerprint(handle, position.offset_bytes)
            position = dataclasses.replace(position, fingerprint=mark)
        return Chunk(
            lines=found,
            position=position,
            more=more,
            path=path,
            read_bytes=taken,
            skipped_bytes=skipped,
        )

    def _add(
        self, segments: list[lines.Segment], position: Position, found: list[Line]
    ) -> tuple[int | None, int]:
        """Append the segments' lines to `found`; return attempt and highest banner behind them."""
        attempt, highest = position.attempt, position.banner
        for number, offset_bytes, raw, marks in segments:
            text = lines.clean(raw)
            if not text or text.isspace():
                continue
            if self.banner is not None and text.startswith(lines.BANNER_START):
                match = self.banner.fullmatch(text)
                # Attempts only go up: a job that prints its own old log begins no new attempt.
                if match and int(match["attempt"]) > highest:
                    attempt = highest = int(match["attempt"])
            found.append(Line(number, text, offset_bytes, attempt, marks))
        return attempt, highest


def _read_rotated(
    reader: _Reader, position: Position, begin: Position, *, stay: bool, final: bool
) -> Chunk | None:
    """Read on in `PATH.1` if that is the file we were in, then lead over to the new file.

    `stay`: there is nothing in the new one, and more may come in the old one.
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
    following = dataclasses.replace(begin, attempt=chunk.position.attempt)
    note = f"{position.path} was rotated: read to the end of {path}"
    return dataclasses.replace(chunk, position=following, more=True, note=note)


def _beginning(position: Position, status: os.stat_result) -> Position:
    # The attempt stays: a log cut by copy-and-truncate goes on within the same attempt.
    return Position(
        path=position.path,
        device=status.st_dev,
        inode=status.st_ino,
        attempt=position.attempt,
    )


def _unread(position: Position, error: OSError) -> Chunk:
    if not isinstance(error, FileNotFoundError):
        note = f"cannot read {position.path}: {error.strerror or error}"
    elif position.inode is None:
        note = files.NO_LOG_YET
    else:
        note = f"{position.path} is gone; it was read up to byte {position.offset_bytes}"
    return Chunk(lines=[], position=position, path=position.path, note=note)


def _is_same(handle: int, status: os.stat_result, position: Position) -> bool:
    """Tell whether the open file is the one of `position`, not shortened and not written anew.

    st_dev alone proves nothing: on NFS it is the client's own number, another one on each login
    node. Nor does an inode: ext4 gives a deleted file's to the next file that is made.
    """
    if status.st_ino != position.inode or status.st_size < position.offset_bytes:
        return False
    if not position.fingerprint:
        return status.st_dev == position.device or position.offset_bytes == 0
    return _fingerprint(handle, position.offset_bytes) in (position.fingerprint, "")


def _is_copy(handle: int, status: os.stat_result, position: Position) -> bool:
    """Tell whether another file goes on where we were: restored, or what copytruncate put aside."""
    if not position.fingerprint or position.offset_bytes < _HEAD_BYTES + _BEFORE_BYTES:
        return False
    if status.st_size < position.offset_bytes:
        return False
    return _fingerprint(handle, position.offset_bytes) == position.fingerprint


def _fingerprint(handle: int, offset_bytes: int) -> str:
    """Return a digest of the file's first bytes and of those before the offset.

    "" where they hold NUL: that may be a hole of the file system, which fills later.
    """
    head = os.pread(handle, min(_HEAD_BYTES, offset_bytes), 0)
    start = max(0, offset_bytes - _BEFORE_BYTES)
    before = os.pread(handle, offset_bytes - start, start)
    if not head or b"\0" in head or b"\0" in before:
        return ""
    return hashlib.blake2b(head + before, digest_size=8).hexdigest()
