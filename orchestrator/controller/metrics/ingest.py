"""Stores the metrics that jobs have added to their logs and metrics files, each once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator import errors, jobs, metrics, patterns, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import job_patterns
from orchestrator.controller.prune import marks
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder
from orchestrator.logs import files, lines, reading
from orchestrator.patterns import prefilter
from orchestrator.text import nouns

#: Time for reading logs in a refresh. The next refresh continues.
LOOK_SECONDS = 5.0
#: Time for reading logs in a command that needs the metrics.
READ_SECONDS = 60.0
#: A file is read and stored in parts. They grow while a part takes less than _PART_SECONDS.
FIRST_PART_BYTES = 64 * 1024
_PART_SECONDS = 0.25
_GROWTH = 4
#: From this size a search is worth its start-up time of 0.1 s.
_SEARCH_BYTES = 1024 * 1024


class Unread(NamedTuple):
    """What was read of a job's files, and what is left."""

    read_bytes: int
    left_bytes: int
    name: str


@dataclasses.dataclass(kw_only=True)
class Ingested:
    #: metrics
    stored: int = 0
    #: row of the job ->
    unread: dict[int, Unread] = dataclasses.field(default_factory=dict)

    def report(self, seconds: float, consequence: str) -> str:
        """Return a sentence about what was not read in this time; "" if all was read."""
        if not self.unread:
            return ""
        read_bytes, left_bytes, name = max(self.unread.values(), key=lambda job: job.left_bytes)
        others = len(self.unread) - 1
        more = f" (and of {nouns.count(others, 'more job')})" if others else ""
        size = f"{read_bytes / 2**20:.1f} of {(read_bytes + left_bytes) / 2**20:.1f} MiB"
        return f"read {size} of {name}'s log{more} in {seconds:g} s; {consequence}"


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
    patterns_of_token: dict[str, tuple[patterns.Pattern, ...]] = {}
    file_context = context
    if not report_notes:
        file_context = context.with_reporter(context.reporter.silent())
    if first is None:
        first = random.randrange(len(selected)) if deadline.is_finite else 0
    for index, job in enumerate([*selected[first:], *selected[:first]]):
        by_path = {cursor.path: cursor for cursor in cursors.get(job.row, [])}
        if index and deadline.is_over:
            _add_unread(result, job, 0, sum(_left_bytes(path, by_path) for path in logs_of(job)))
            continue
        context.guard.check()
        try:
            if job.token not in patterns_of_token:
                spec = specs.from_json(texts[job.token])
                patterns_of_token[job.token] = job_patterns.of_job(configured, spec)
            with context.reporter.activity(f"Reading the log of {_name(job)}"):
                reader = _JobReader(
                    context=file_context,
                    job=job,
                    known=patterns_of_token[job.token],
                    cursors=by_path,
                    result=result,
                )
                reader.read(deadline.share(len(selected) - index))
        except errors.OrchestratorError as exc:
            if len(selected) == 1:
                raise
            context.reporter.warn(f"@{job.row}: its metrics were not read: {exc}")
    return result


def ingest_or_warn(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    configured: Sequence[patterns.Pattern] | None = None,
    *,
    deadline: deadlines.Deadline,
    first: int | None = None,
) -> Ingested:
    """Do the same, but warn if the database cannot store the metrics."""
    try:
        return ingest(context, selected, configured, deadline=deadline, first=first)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"New metrics in the logs are not stored: {exc}")
        return Ingested()


def ingest_rows(context: contexts.Context, job_rows: Sequence[int]) -> int:
    """Ingest the jobs with these rows for LOOK_SECONDS; return the number of stored metrics."""
    if not job_rows:
        return 0
    with context.store.reading() as work:
        selected = work.jobs.find(jobs.JobQuery(rows=job_rows, limit=None))
    selected = sorted(selected, key=lambda job: job.row)
    result = ingest(context, selected, deadline=deadlines.NEVER.within(LOOK_SECONDS))
    if report := result.report(LOOK_SECONDS, "the next refresh continues"):
        context.reporter.warn(report)
    return result.stored


def ingest_for_command(context: contexts.Context, selected: Sequence[jobs.Job]) -> None:
    """Ingest jobs for a command that needs their metrics; warn if some are missing."""
    deadline = deadlines.NEVER.within(READ_SECONDS)
    # In order: the command may be repeated until it has read all.
    result = ingest_or_warn(context, selected, deadline=deadline, first=0)
    if report := result.report(READ_SECONDS, "metrics are missing: run the command again"):
        context.reporter.warn(report)


def ingest_soon(context: contexts.Context, job: jobs.Job) -> None:
    """Ingest a job that someone looks at, for LOOK_SECONDS; what is left is read next time."""
    ingest_or_warn(context, [job], deadline=context.deadline.within(LOOK_SECONDS))


def _name(job: jobs.Job) -> str:
    return job.job_id or f"@{job.row}"


def logs_of(job: jobs.Job) -> list[str]:
    return [path for path in (job.stdout_path, job.stderr_path) if path is not None]


def files_of(job: jobs.Job) -> list[str]:
    """Return the paths of a job's logs, and last that of its metrics file."""
    folder = run_folder.RunFolder(Path(job.run_dir))
    return [*logs_of(job), str(folder.metrics_file(job.array_task_id))]


def _left_bytes(path: str, cursors: Mapping[str, metrics.LogCursor]) -> int:
    return reading.unread_bytes(path, cursors[path].offset_bytes if path in cursors else 0)


def _add_unread(result: Ingested, job: jobs.Job, read_bytes: int, left_bytes: int) -> None:
    if left_bytes:
        result.unread[job.row] = Unread(read_bytes, left_bytes, _name(job))


@dataclasses.dataclass(kw_only=True)
class _JobReader:
    """Reads the files of one job, and adds to the result."""

    context: contexts.Context
    job: jobs.Job
    known: Sequence[patterns.Pattern]
    #: by path
    cursors: Mapping[str, metrics.LogCursor]
    result: Ingested
    read_bytes: int = 0

    def read(self, deadline: deadlines.Deadline) -> None:
        """Read at least one part of each file. The files share the time equally."""
        paths = files_of(self.job)
        left_bytes = 0
        for index, path in enumerate(paths):
            share = deadline.share(len(paths) - index)
            left_bytes += self._read_file(path, share, is_log=path != paths[-1])
        _add_unread(self.result, self.job, self.read_bytes, left_bytes)

    def _read_file(self, path: str, deadline: deadlines.Deadline, *, is_log: bool) -> int:
        """Read a file until the deadline; return the number of bytes left."""
        stored = self.cursors.get(path)
        cursor = stored or metrics.LogCursor(path=path)
        matcher = patterns.Matcher(self.known if is_log else (), cursor.matching)
        banner = lines.banner_of(self.job)
        final = self.job.state in jobs.TERMINAL and self.job.settled
        search: reading.Search | None = None
        limit_bytes = FIRST_PART_BYTES
        while True:
            if is_log and reading.unread_bytes(path, cursor.offset_bytes) >= _SEARCH_BYTES:
                search = prefilter.search(self.known, also=[lines.BANNER_START])
            begun = deadline.clock()
            chunk = reading.read(
                cursor, banner=banner, final=final, search=search, limit_bytes=limit_bytes
            )
            parsed = list(self._parse(chunk, path, matcher if is_log else None))
            self.read_bytes += chunk.read_bytes
            if chunk.cursor != cursor:
                cursor = dataclasses.replace(chunk.cursor, matching=matcher.state)
                with self.context.store.writing() as work:
                    if not work.log_cursors.move(self.job.row, cursor, expect=stored):
                        # Another process has stored the same metrics.
                        return 0
                    self.result.stored += work.metrics.add(self.job.row, parsed)
                stored = cursor
            if not chunk.more or deadline.is_over:
                break
            is_quick = deadline.clock() - begun < _PART_SECONDS
            limit_bytes = limit_bytes * _GROWTH if is_quick else FIRST_PART_BYTES
            limit_bytes = min(limit_bytes, reading.READ_LIMIT_BYTES)
        if chunk.note not in ("", files.NO_LOG_YET) and not marks.note(self.context, self.job):
            self.context.reporter.warn(chunk.note)
        for message in matcher.slow:
            self.context.reporter.warn(f"{_name(self.job)}: {message}")
        return reading.unread_bytes(path, cursor.offset_bytes) if chunk.more else 0

    def _parse(
        self, chunk: reading.Chunk, path: str, matcher: patterns.Matcher | None
    ) -> Iterator[metrics.ParsedLine]:
        """Yield the metrics in each line. matcher: None for metrics.jsonl."""
        # Only our own scripts print banners, and on stdout; text before the first is not the job's.
        has_banners = path == self.job.stdout_path and self.job.tracked_name is None
        for number, text, attempt in chunk.lines:
            if matcher is None:
                for metric in patterns.parse_jsonl(text, path=path, line=number):
                    yield metrics.ParsedLine.of(metric)
            elif attempt is not None or not has_banners:
                attempt = self.job.attempt if attempt is None else attempt
                yield from matcher.parse_line(text, attempt=attempt, path=path, line=number)
