"""Stores the metrics that jobs have added to their logs and metrics files, each once."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from orchestrator import errors, jobs, logs, metrics, patterns, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import job_patterns
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder

#: Time for reading logs in a refresh. The next refresh continues.
LOOK_SECONDS = 5.0
#: Time for reading logs in a command that needs the metrics.
READ_SECONDS = 60.0
#: A file is read and stored in parts. They grow while a part takes less than _PART_SECONDS.
FIRST_PART_BYTES = 64 * 1024
_PART_SECONDS = 0.25
_GROWTH = 4

#: By the identity of their patterns: most jobs have the same ones, and compiling takes 0.1 s.
_Prefilters: TypeAlias = dict[tuple[int, ...], patterns.Prefilter]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unread:
    """What is left to read of a job's files."""

    name: str
    read_bytes: int
    left_bytes: int


@dataclasses.dataclass(kw_only=True)
class Ingested:
    """The result of ingest()."""

    #: metrics
    stored: int = 0
    read_bytes: int = 0
    #: row of the job ->
    unread: dict[int, Unread] = dataclasses.field(default_factory=dict)

    def report(self, seconds: float, consequence: str) -> str:
        """Return a sentence about what was not read in this time; "" if all was read."""
        if not self.unread:
            return ""
        most = max(self.unread.values(), key=lambda unread: unread.left_bytes)
        others = len(self.unread) - 1
        more = f" (and of {others} more job{'s' if others > 1 else ''})" if others else ""
        size = f"{_mib(most.read_bytes)} of {_mib(most.read_bytes + most.left_bytes)} MiB"
        return f"read {size} of {most.name}'s log{more} in {seconds:g} s; {consequence}"


def ingest(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    configured: Sequence[patterns.Pattern] | None = None,
    *,
    report_notes: bool = True,
    deadline: deadlines.Deadline = deadlines.NEVER,
    first: int | None = None,
) -> Ingested:
    """Read what is new in the jobs' files and store the metrics.

    The metrics of a part and the position behind it are stored in one transaction. So neither a
    crash nor another reader loses or doubles a metric. At the deadline, or that of the context, the
    rest is left for the next call; at least one part is read. The jobs share the time equally.

    Args:
        configured: patterns that any job may use; None: load them.
        report_notes: warn of files that are truncated or unreadable.
        first: the index of the job to begin with; None: a random one, so that none is always late.
    """
    result = Ingested()
    if not selected:
        return result
    deadline = deadline.earlier(context.deadline)
    configured = configured or job_patterns.configured(context.configuration)
    with context.store.reading() as work:
        cursors = work.log_cursors.of_jobs([job.row for job in selected])
        texts = work.jobs.specs({job.token for job in selected})
    # The tasks of an array share a spec.
    chosen: dict[str, tuple[patterns.Pattern, ...]] = {}
    prefilters: _Prefilters = {}
    if first is None:
        first = random.randrange(len(selected)) if deadline.is_finite else 0
    ordered = [*selected[first:], *selected[:first]]
    for index, job in enumerate(ordered):
        if index and deadline.is_over:
            for late in ordered[index:]:
                _add_unread(late, cursors.get(late.row, []), result)
            break
        context.guard.check()
        try:
            if job.token not in chosen:
                spec = specs.from_json(texts[job.token])
                chosen[job.token] = job_patterns.of_job(configured, spec)
            with context.reporter.activity(f"Reading the log of {_name(job)}"):
                sources = list(_sources(job, chosen[job.token], prefilters))
                share = deadline.share(len(ordered) - index)
                _read_job(
                    context if report_notes else context.with_reporter(context.reporter.silent()),
                    job,
                    sources,
                    {cursor.path: cursor for cursor in cursors.get(job.row, [])},
                    share,
                    result,
                )
        except errors.OrchestratorError as exc:
            if len(selected) == 1:
                raise
            context.reporter.warn(f"@{job.row}: its metrics were not read: {exc}")
    return result


def ingest_rows(context: contexts.Context, job_rows: Sequence[int]) -> int:
    """Ingest the jobs with these rows for LOOK_SECONDS; return the number of stored metrics."""
    if not job_rows:
        return 0
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(rows=job_rows, limit=None))
    ordered = sorted(found, key=lambda job: job.row)
    result = ingest(context, ordered, deadline=deadlines.NEVER.within(LOOK_SECONDS))
    if report := result.report(LOOK_SECONDS, "the next refresh continues"):
        context.reporter.warn(report)
    return result.stored


def ingest_for_command(context: contexts.Context, selected: Sequence[jobs.Job]) -> None:
    """Ingest jobs for a command that needs their metrics; warn if some are missing."""
    deadline = deadlines.NEVER.within(READ_SECONDS)
    try:
        # In order: the command may be repeated until it has read all.
        result = ingest(context, selected, deadline=deadline, first=0)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"New metrics in the logs are not stored: {exc}")
        return
    if report := result.report(READ_SECONDS, "metrics are missing: run the command again"):
        context.reporter.warn(report)


def ingest_part(context: contexts.Context, selected: Sequence[jobs.Job]) -> bool:
    """Ingest jobs for LOOK_SECONDS; return whether there is more to read."""
    deadline = context.deadline.within(LOOK_SECONDS)
    try:
        return bool(ingest(context, selected, deadline=deadline).unread)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"New metrics in the logs are not stored: {exc}")
        return False


def _name(job: jobs.Job) -> str:
    return job.job_id or f"@{job.row}"


def _mib(size_bytes: int) -> str:
    mib = size_bytes / 2**20
    return f"{mib:.0f}" if mib >= 10 else f"{mib:.1f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Source:
    """A file with metrics of a job."""

    path: str
    #: of lines in a file without banners
    attempt: int
    #: of a log; None: a metrics.jsonl
    known: tuple[patterns.Pattern, ...] | None = None
    prefilter: patterns.Prefilter | None = None
    #: each attempt begins with a banner, and text before the first one is not of this job
    has_banners: bool = False


def _sources(
    job: jobs.Job, known: tuple[patterns.Pattern, ...], prefilters: _Prefilters
) -> Iterator[_Source]:
    prefilter = prefilters.setdefault(
        tuple(id(pattern) for pattern in known),
        patterns.Prefilter(known, also=[logs.BANNER_START]),
    )
    # Only our own scripts print banners, and on stdout.
    logs_ = ((job.stdout_path, job.tracked_name is None), (job.stderr_path, False))
    for path, has_banners in logs_:
        if path is not None:
            yield _Source(
                path=path,
                attempt=job.attempt,
                known=known,
                prefilter=prefilter,
                has_banners=has_banners,
            )
    task = job.array_task_id
    folder = run_folder.RunFolder(Path(job.run_dir))
    path = str(folder.metrics_file(task or 0, array=task is not None))
    yield _Source(path=path, attempt=job.attempt)


def _add_unread(job: jobs.Job, cursors: Sequence[metrics.LogCursor], result: Ingested) -> None:
    offsets = {cursor.path: cursor.offset_bytes for cursor in cursors}
    paths = [path for path in (job.stdout_path, job.stderr_path) if path is not None]
    left = sum(logs.unread_bytes(path, offsets.get(path, 0)) for path in paths)
    if left:
        result.unread[job.row] = Unread(name=_name(job), read_bytes=0, left_bytes=left)


def _read_job(
    context: contexts.Context,
    job: jobs.Job,
    sources: Sequence[_Source],
    cursors: Mapping[str, metrics.LogCursor],
    deadline: deadlines.Deadline,
    result: Ingested,
) -> None:
    """Read the files of a job, each for its share of the time, and add to the result."""
    before, left = result.read_bytes, 0
    for index, source in enumerate(sources):
        share = deadline.share(len(sources) - index)
        left += _read_file(context, job, source, cursors.get(source.path), share, result)
    if left:
        read = result.read_bytes - before
        result.unread[job.row] = Unread(name=_name(job), read_bytes=read, left_bytes=left)


def _read_file(
    context: contexts.Context,
    job: jobs.Job,
    source: _Source,
    cursor: metrics.LogCursor | None,
    deadline: deadlines.Deadline,
    result: Ingested,
) -> int:
    """Read at least one part of a file, until the deadline; return the number of bytes left."""
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    final = job.state in jobs.TERMINAL and job.settled
    position, state = _resume(source.path, cursor)
    matcher = patterns.Matcher(source.known or (), state)
    search: logs.Search | None = None
    limit = FIRST_PART_BYTES
    left = 0
    while True:
        if source.prefilter is not None and logs.is_large(position):
            search = source.prefilter.search(generic=matcher.generic)
        begun = deadline.clock()
        chunk = logs.read(position, banner=banner, final=final, search=search, limit_bytes=limit)
        lines = list(_parsed_lines(source, matcher, chunk))
        new_cursor = _cursor(chunk.position, {} if source.known is None else matcher.state)
        result.read_bytes += chunk.read_bytes
        if new_cursor != cursor and chunk.position != position:
            with context.store.writing() as work:
                if not work.log_cursors.move(job.row, new_cursor, expect=cursor):
                    # Another process has stored the same metrics.
                    break
                result.stored += work.metrics.add(job.row, lines)
            cursor, position = new_cursor, chunk.position
        if not chunk.more:
            if chunk.note and chunk.note != logs.NO_LOG_YET:
                context.reporter.warn(chunk.note)
            break
        if deadline.is_over:
            left = logs.unread_bytes(position.path, position.offset_bytes)
            break
        is_quick = deadline.clock() - begun < _PART_SECONDS
        limit = min(limit * _GROWTH, logs.READ_LIMIT_BYTES) if is_quick else FIRST_PART_BYTES
    for message in matcher.slow:
        context.reporter.warn(f"{_name(job)}: {message}")
    return left


def _parsed_lines(
    source: _Source, matcher: patterns.Matcher, chunk: logs.Chunk
) -> Iterator[metrics.ParsedLine]:
    for number, text, _, attempt in chunk.lines:
        if source.known is None:
            for metric in patterns.parse_jsonl(text, path=source.path, line=number):
                yield metrics.ParsedLine.of(metric)
        elif attempt is not None or not source.has_banners:
            yield from matcher.read(
                text,
                attempt=source.attempt if attempt is None else attempt,
                path=source.path,
                line=number,
            )


def _resume(path: str, cursor: metrics.LogCursor | None) -> tuple[logs.Position, Mapping[str, Any]]:
    """Return where to read on, and the state of the matcher."""
    if cursor is None:
        return logs.Position(path=path), {}
    try:
        carry = json.loads(cursor.carry) if cursor.carry else {}
        reading, matching = carry.get("reading", {}), carry.get("matching", {})
        position = logs.Position.resume(
            reading,
            path=path,
            device=cursor.device or None,
            inode=cursor.inode or None,
            offset_bytes=cursor.offset_bytes,
            line=cursor.line,
        )
    except (ValueError, AttributeError) as exc:
        raise errors.DatabaseError(
            f"the stored position in {path} is not readable: `orchestrator db check` shows details"
        ) from exc
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
