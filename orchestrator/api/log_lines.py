"""The lines of jobs' logs as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator import errors, jobs
from orchestrator.controller.logs import reading
from orchestrator.logs import tailing

if TYPE_CHECKING:
    from orchestrator.api.sessions import Session


def existing(
    session: Session,
    selected: Sequence[jobs.Job],
    *,
    lines: int | None,
    stderr: bool,
    attempt: int | None,
) -> Iterator[str]:
    """Yield the lines that the logs have now. Raises NotFoundError if there is no log."""
    for job in selected:
        blocks = _blocks(session, job, lines=lines, stderr=stderr, attempt=attempt)
        yield from _lines(blocks)


def followed(
    session: Session, selected: Sequence[jobs.Job], *, lines: int | None, stderr: bool
) -> Iterator[str]:
    """Yield lines until all jobs have ended. Raises NotFoundError if none of them had a log."""
    by_row = {job.row: job for job in selected}
    with session.context() as context:
        stream = reading.follow(context, by_row, lines=lines, stderr=stderr)
    is_seen = False
    while True:
        with session.context():
            item = next(stream, None)
        if item is None:
            break
        is_seen = True
        yield from map(_text, item[1])
    if is_seen:
        return
    for job in by_row.values():
        # An empty log is a log.
        next(_blocks(session, job, lines=0, stderr=stderr, attempt=None), b"")


def _blocks(
    session: Session, job: jobs.Job, *, lines: int | None, stderr: bool, attempt: int | None
) -> Iterator[bytes]:
    with session.context() as context:
        part = reading.part(context, job, stderr=stderr, attempt=attempt)
    try:
        yield from tailing.tail(part.path, lines, part.span.begin_bytes, part.span.end_bytes)
    except errors.NotFoundError:
        with session.context() as context:
            message = reading.missing(context, job, part.path)
        raise errors.NotFoundError(message) from None


def _lines(blocks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from map(_text, whole)
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")
