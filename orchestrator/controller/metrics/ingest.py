"""ingest: what was added to the logs and metrics files since last time -> metrics, each once."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator import errors, jobs, logs, metrics, patterns, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import patterns as vocabulary
from orchestrator.controller.session import contexts
from orchestrator.tracking import run_folder

#: One look at the logs of all live jobs takes so long; the next one reads on.
LOOK_SECONDS = 5.0
#: A command about the numbers of some jobs reads their logs for so long.
READ_SECONDS = 60.0
#: Bytes of the first part of a file that is read, and stored; the next parts are larger ...
FIRST_PART_BYTES = 64 * 1024
#: ... while a part takes less than this.
_PART_SECONDS = 0.25
_GROWTH = 4

#: By the patterns' identities: most jobs have the same ones, and to make a scanner takes time.
_Scanners: TypeAlias = dict[tuple[int, ...], patterns.Scanner]


@dataclasses.dataclass(kw_only=True)
class Ingested:
    """What was read of the files of jobs."""

    #: metrics
    stored: int = 0
    read_bytes: int = 0
    #: row of each job with more to read -> its name, bytes that were read, bytes that are left
    unread: dict[int, tuple[str, int, int]] = dataclasses.field(default_factory=dict)

    def report(self, seconds: float, then: str) -> str:
        """Return what was not read within this time, as a sentence; "" where all was read."""
        if not self.unread:
            return ""
        name, read_bytes, left_bytes = max(self.unread.values(), key=lambda one: one[2])
        others = len(self.unread) - 1
        more = f" (and of {others} more jobs)" if others > 1 else " (and of 1 more job)" * others
        total = _mib(read_bytes + left_bytes)
        return (
            f"read {_mib(read_bytes)} of {total} MiB of {name}'s log{more} in {seconds:g} s; {then}"
        )


def ingest(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    shipped: Sequence[patterns.Pattern] | None = None,
    *,
    say: Callable[[str], None] | None = None,
    deadline: deadlines.Deadline = deadlines.NEVER,
    choose: Callable[[int], int] = random.randrange,
) -> Ingested:
    """Read what is new in the jobs' files and store their metrics.

    `say` is told what is odd about a file, that it was cut or cannot be read. What is wrong with
    one job ends no other where there are several.

    At the deadline, or the context's, the rest is left for the next call; a part is read in any
    case. The time is shared out
    among the jobs; what one leaves of its share is for those that follow. `choose` says which of
    so many comes first, so that none is always too late.

    The metrics of a part and the place where reading goes on are committed together, so a crash,
    or another reader at the same time, neither loses nor doubles one.
    """
    done = Ingested()
    if not wanted:
        return done
    deadline = deadline.earlier(context.deadline)
    known = shipped or vocabulary.known(context.configuration)
    with context.store.reading() as work:
        cursors = work.log_cursors.of_jobs([job.row for job in wanted])
        texts = work.jobs.specs({job.token for job in wanted})
    # The tasks of an array share their spec, which holds the arguments of all of them.
    chosen: dict[str, tuple[patterns.Pattern, ...]] = {}
    scanners: _Scanners = {}
    first = choose(len(wanted)) if deadline.is_finite else 0
    ordered = [*wanted[first:], *wanted[:first]]
    for place, job in enumerate(ordered):
        if place and deadline.is_over:
            for late in ordered[place:]:
                _leave(late, cursors.get(late.row, []), done)
            break
        context.guard.check()
        share = deadline.share(len(ordered) - place)
        try:
            if job.token not in chosen:
                spec = specs.from_json(texts[job.token])
                chosen[job.token] = vocabulary.of_job(known, spec)
            with context.reporter.activity(f"Reading the log of {_name(job)}"):
                readers = list(_readers(job, chosen[job.token], scanners))
                told = say or context.reporter.warn
                _read_job(context, job, readers, cursors.get(job.row, []), told, share, done)
        except errors.OrchestratorError as exc:
            if len(wanted) == 1:
                raise
            context.reporter.warn(f"@{job.row}: its metrics were not read: {exc}")
    return done


def ingest_all(context: contexts.Context, job_rows: Sequence[int]) -> int:
    """Read the files of the jobs with these rows as far as a look may take; say what is left."""
    if not job_rows:
        return 0
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(rows=job_rows, limit=None))
    ordered = sorted(found, key=lambda job: job.row)
    done = ingest(context, ordered, deadline=deadlines.NEVER.within(LOOK_SECONDS))
    if told := done.report(LOOK_SECONDS, "the next refresh continues"):
        context.reporter.warn(told)
    return done.stored


def ingest_for_numbers(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    say: Callable[[str], None] | None = None,
) -> Ingested:
    """Read the files of jobs whose numbers are asked for; say so where some are missing yet."""
    deadline = deadlines.NEVER.within(READ_SECONDS)
    # In their order, as the command is repeated until it has read all.
    done = ingest(context, wanted, say=say, deadline=deadline, choose=lambda many: 0)
    if told := done.report(READ_SECONDS, "numbers are missing: run the command again to read on"):
        (say or context.reporter.warn)(told)
    return done


def _name(job: jobs.Job) -> str:
    return job.job_id or f"@{job.row}"


def _mib(size_bytes: int) -> str:
    mib = size_bytes / 2**20
    return f"{mib:.0f}" if mib >= 10 else f"{mib:.1f}"


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


def _leave(job: jobs.Job, cursors: Sequence[metrics.LogCursor], done: Ingested) -> None:
    """Note what there is to read of a job whose turn did not come."""
    read = {cursor.path: cursor.offset_bytes for cursor in cursors}
    left = sum(
        logs.left_bytes(path, read.get(path, 0))
        for path in (job.stdout_path, job.stderr_path)
        if path is not None
    )
    if left:
        done.unread[job.row] = (_name(job), 0, left)


def _read_job(
    context: contexts.Context,
    job: jobs.Job,
    readers: Sequence[_Reader],
    cursors: Sequence[metrics.LogCursor],
    say: Callable[[str], None],
    deadline: deadlines.Deadline,
    done: Ingested,
) -> None:
    """Read the files of a job, each for its share of the time; add to what was done."""
    known = {cursor.path: cursor for cursor in cursors}
    before, left = done.read_bytes, 0
    for place, reader in enumerate(readers):
        share = deadline.share(len(readers) - place)
        left += _read_file(context, job, reader, known.get(reader.path), say, share, done)
    if left:
        done.unread[job.row] = (_name(job), done.read_bytes - before, left)


def _read_file(
    context: contexts.Context,
    job: jobs.Job,
    reader: _Reader,
    cursor: metrics.LogCursor | None,
    say: Callable[[str], None],
    deadline: deadlines.Deadline,
    done: Ingested,
) -> int:
    """Read a file up to the deadline, at least a part of it; returns how many bytes are left."""
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    final = job.state in jobs.TERMINAL and job.settled
    position, state = _resume(reader.path, cursor)
    matcher = patterns.Matcher(reader.known or (), state)
    search: logs.Search | None = None
    most = FIRST_PART_BYTES
    left = 0
    while True:
        if reader.scanner is not None and logs.is_large(position) and reader.scanner.usable:
            search = reader.scanner.search(generic=matcher.generic, followed=matcher.followed)
        begun = deadline.clock()
        chunk = logs.read(position, banner=banner, final=final, search=search, limit_bytes=most)
        found = list(_numbers(reader, matcher, chunk))
        after = _cursor(chunk.position, {} if reader.known is None else matcher.state)
        done.read_bytes += chunk.read_bytes
        if after != cursor and chunk.position != position:
            with context.store.writing() as work:
                if not work.log_cursors.move(job.row, after, expect=cursor):
                    # Another process read the same bytes and stored their metrics.
                    break
                done.stored += work.metrics.add(job.row, found)
            cursor, position = after, chunk.position
        if not chunk.more:
            if chunk.note and chunk.note != logs.NO_LOG_YET:
                say(chunk.note)
            break
        if deadline.is_over:
            left = logs.left_bytes(position.path, position.offset_bytes)
            break
        is_quick = deadline.clock() - begun < _PART_SECONDS
        most = min(most * _GROWTH, logs.READ_LIMIT_BYTES) if is_quick else FIRST_PART_BYTES
    for reason in filter(None, matcher.slow.values()):
        say(f"{_name(job)}: {reason}")
    return left


def _numbers(
    reader: _Reader, matcher: patterns.Matcher, chunk: logs.Chunk
) -> Iterator[metrics.ParsedLine]:
    """Yield the numbers of the lines that have any."""
    path = reader.path
    for number, text, _, attempt, marks in chunk.lines:
        if reader.known is None:
            for metric in patterns.parse_jsonl(text, path=path, line=number):
                yield metrics.ParsedLine.of(metric)
            continue
        if attempt is None:
            if reader.banners:
                continue
            attempt = reader.attempt
        for found in matcher.read(text, attempt=attempt, marks=marks):
            source, rank, world_size, step, epoch, time, names, values = found
            yield metrics.ParsedLine(
                path, source, attempt, rank, world_size, names, step, epoch, time, number, values
            )


def _resume(path: str, cursor: metrics.LogCursor | None) -> tuple[logs.Position, Mapping[str, Any]]:
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


def _cursor(position: logs.Position, state: Mapping[str, Any]) -> metrics.LogCursor:
    return metrics.LogCursor(
        path=position.path,
        device=position.device or 0,
        inode=position.inode or 0,
        offset_bytes=position.offset_bytes,
        line=position.line,
        carry=json.dumps({"reading": position.carry, "matching": state}),
    )
