"""ingest: what was added to the logs and metrics files since last time -> metrics, each once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator import errors, jobs, logs, patterns, run_folder, specs
from orchestrator.controller import context as contexts
from orchestrator.controller import rows, unit_of_work, vocabulary

#: What one look over all jobs reads, some seconds' worth; what is more is read by the next.
LOOK_LIMIT_BYTES = 256 * 1024 * 1024
#: What a job may be read of at least, however many there are.
_LEAST_SHARE_BYTES = 256 * 1024

#: By the patterns' identities: most jobs have the same ones, and to make a scanner takes time.
_Scanners: TypeAlias = dict[tuple[int, ...], patterns.Scanner]


def ingest(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    shipped: Sequence[patterns.Pattern] | None = None,
    *,
    say: Callable[[str], None] | None = None,
    limit_bytes: int | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Read what is new in the jobs' files and store their metrics; returns how many were stored.

    `say` is told what is odd about a file, that it was cut or cannot be read. What is wrong with
    one job ends no other where there are several. When `enough` says so the rest is left for the
    next time.

    With `limit_bytes` so much is read in all, shared out among the jobs, and the next call reads
    on; the rest of a job's share is for the jobs that follow.

    The metrics of a chunk and the place where reading goes on are committed together, so a crash,
    or another reader at the same time, neither loses nor doubles one.
    """
    if not wanted:
        return 0
    known = shipped or vocabulary.known(context.configuration)
    with context.store.reading() as work:
        cursors = work.log_cursors_of([job.row for job in wanted])
        texts = work.specs({job.token for job in wanted})
    # The tasks of an array share their spec, which holds the arguments of all of them.
    chosen: dict[str, tuple[patterns.Pattern, ...]] = {}
    scanners: _Scanners = {}
    stored = 0
    left = limit_bytes
    for place, job in enumerate(wanted):
        if enough():
            break
        context.proceed()
        share = None if left is None else max(left // (len(wanted) - place), _LEAST_SHARE_BYTES)
        places = {cursor.path: cursor for cursor in cursors.get(job.row, [])}
        try:
            if job.token not in chosen:
                spec = specs.from_json(texts[job.token])
                chosen[job.token] = vocabulary.of_job(known, spec)
            with context.waiting(f"Reading the log of {job.job_id or f'@{job.row}'}"):
                for reader in _readers(job, chosen[job.token], scanners):
                    cursor = places.get(reader.path)
                    told = say or context.say
                    found, read_bytes = _read_file(
                        context, job, reader, cursor, told, share, enough
                    )
                    stored += found
                    share = None if share is None else max(share - read_bytes, 0)
                    left = None if left is None else left - read_bytes
        except errors.OrchestratorError as exc:
            if len(wanted) == 1:
                raise
            context.say(f"@{job.row}: its metrics were not read: {exc}")
    return stored


def ingest_all(context: contexts.Context, job_rows: Sequence[int]) -> int:
    """Read the files of the jobs with these rows, as they are now, as far as a look may take."""
    if not job_rows:
        return 0
    with context.store.reading() as work:
        found = work.jobs(unit_of_work.JobQuery(rows=job_rows, limit=None))
    ordered = sorted(found, key=lambda job: job.row)
    return ingest(context, ordered, limit_bytes=LOOK_LIMIT_BYTES)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """One file of a job and how its lines become metrics."""

    path: str
    #: the patterns of a log; none: metrics.jsonl
    known: tuple[patterns.Pattern, ...] | None
    #: finds their lines in large files; none: metrics.jsonl
    scanner: patterns.Scanner | None
    #: a banner begins each attempt; what stands above the first is not this job's
    banners: bool
    #: what lines belong to in a file without banners
    attempt: int


def _readers(
    job: jobs.Job,
    known: tuple[patterns.Pattern, ...],
    scanners: _Scanners,
) -> Iterator[_Reader]:
    scanner = scanners.setdefault(
        tuple(id(pattern) for pattern in known),
        patterns.Scanner(known, also=[logs.BANNER_START]),
    )
    if job.stdout_path is not None:
        # Only our own scripts write banners.
        banners = job.tracked_name is None
        yield _Reader(job.stdout_path, known, scanner, banners=banners, attempt=job.attempt)
    if job.stderr_path is not None:
        yield _Reader(job.stderr_path, known, scanner, banners=False, attempt=job.attempt)
    folder = run_folder.RunFolder(Path(job.run_dir))
    task = job.array_task_id
    metrics_file = folder.metrics_file(task or 0, array=task is not None)
    yield _Reader(str(metrics_file), None, None, banners=False, attempt=job.attempt)


def _read_file(
    context: contexts.Context,
    job: jobs.Job,
    reader: _Reader,
    cursor: rows.LogCursor | None,
    say: Callable[[str], None],
    limit_bytes: int | None,
    enough: Callable[[], bool],
) -> tuple[int, int]:
    """Return how many metrics were stored and how many bytes were read."""
    stored = read_bytes = 0
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    final = job.state in jobs.TERMINAL and job.settled
    position, state = _resume(reader.path, cursor)
    matcher = patterns.Matcher(reader.known or (), state)
    search: logs.Search | None = None
    while limit_bytes is None or read_bytes < limit_bytes:
        if reader.scanner is not None and logs.is_large(position) and reader.scanner.usable:
            search = reader.scanner.search(generic=matcher.generic, followed=matcher.followed)
        most = logs.READ_LIMIT_BYTES
        if limit_bytes is not None:
            most = min(most, limit_bytes - read_bytes)
        chunk = logs.read(position, banner=banner, final=final, search=search, limit_bytes=most)
        found = list(_numbers(reader, matcher, chunk))
        after = _cursor(chunk.position, {} if reader.known is None else matcher.state)
        read_bytes += chunk.read_bytes
        if after != cursor and chunk.position != position:
            with context.store.writing() as work:
                if not work.put_log_cursor(job.row, after, expect=cursor):
                    # Another process read the same bytes and stored their metrics.
                    break
                stored += work.add_numbers(job.row, found)
            cursor, position = after, chunk.position
        if not chunk.more:
            if chunk.note and chunk.note != logs.NO_LOG_YET:
                say(chunk.note)
            break
        if enough():
            break
    return stored, read_bytes


def _numbers(
    reader: _Reader, matcher: patterns.Matcher, chunk: logs.Chunk
) -> Iterator[unit_of_work.Numbers]:
    """Yield the numbers of the lines that have any."""
    path = reader.path
    for number, text, _, attempt, marks in chunk.lines:
        if reader.known is None:
            yield from rows.numbers_of(patterns.parse_jsonl(text, path=path, line=number))
            continue
        if attempt is None:
            if reader.banners:
                continue
            attempt = reader.attempt
        for found in matcher.read(text, attempt=attempt, marks=marks):
            source, rank, world_size, step, epoch, time, names, values = found
            yield unit_of_work.Numbers(
                path, source, attempt, rank, world_size, names, step, epoch, time, number, values
            )


def _resume(path: str, cursor: rows.LogCursor | None) -> tuple[logs.Position, Mapping[str, Any]]:
    if cursor is None:
        return logs.Position(path=path), {}
    try:
        carry = json.loads(cursor.carry) if cursor.carry else {}
        reading, matching = carry.get("reading", {}), carry.get("matching", {})
    except (ValueError, AttributeError) as exc:
        raise errors.DatabaseError(
            f"the stored place in {path} is not readable; `orchestrator db check` tells more"
        ) from exc
    position = logs.Position.resume(
        path=path,
        device=cursor.device or None,
        inode=cursor.inode or None,
        offset_bytes=cursor.offset_bytes,
        line=cursor.line,
        carry=reading,
    )
    return position, matching


def _cursor(position: logs.Position, state: Mapping[str, Any]) -> rows.LogCursor:
    return rows.LogCursor(
        path=position.path,
        device=position.device or 0,
        inode=position.inode or 0,
        offset_bytes=position.offset_bytes,
        line=position.line,
        carry=json.dumps({"reading": position.carry, "matching": state}),
    )
