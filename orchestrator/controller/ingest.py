"""ingest: what was added to the logs and metrics files since last time -> metrics, each once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs, logs, patterns, run_folder, specs
from orchestrator.controller import context as contexts
from orchestrator.controller import rows, unit_of_work, vocabulary


def ingest(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    shipped: Sequence[patterns.Pattern] | None = None,
    *,
    say: Callable[[str], None] | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> int:
    """Read what is new in the jobs' files and store their metrics; returns how many were stored.

    `say` is told what is odd about a file, that it was cut or cannot be read. What is wrong with
    one job ends no other where there are several. When `enough` says so the rest is left for the
    next time.

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
    chosen = {
        token: vocabulary.of_job(known, specs.from_json(text)) for token, text in texts.items()
    }
    stored = 0
    for job in wanted:
        if enough():
            break
        places = {cursor.path: cursor for cursor in cursors.get(job.row, [])}
        try:
            with context.waiting(f"Reading the log of {job.job_id or f'@{job.row}'}"):
                for reader in _readers(job, tuple(chosen[job.token])):
                    cursor = places.get(reader.path)
                    stored += _read_file(context, job, reader, cursor, say or context.say, enough)
        except errors.OrchestratorError as exc:
            if len(wanted) == 1:
                raise
            context.say(f"@{job.row}: its metrics were not read: {exc}")
    return stored


def ingest_all(context: contexts.Context, job_rows: Sequence[int]) -> int:
    """Read the files of the jobs with these rows, as they are now."""
    if not job_rows:
        return 0
    with context.store.reading() as work:
        found = work.jobs(unit_of_work.JobQuery(rows=job_rows, limit=None))
    return ingest(context, sorted(found, key=lambda job: job.row))


@dataclasses.dataclass(frozen=True)
class _Reader:
    """One file of a job and how its lines become metrics."""

    path: str
    #: the patterns of a log; none: metrics.jsonl
    known: tuple[patterns.Pattern, ...] | None
    #: a banner begins each attempt; what stands above the first is not this job's
    banners: bool
    #: what lines belong to in a file without banners
    attempt: int

    def metrics(
        self, chunk: logs.Chunk, state: Mapping[str, Any]
    ) -> tuple[list[jobs.Metric], Mapping[str, Any]]:
        if self.known is None:
            return [
                metric
                for line in chunk.lines
                for metric in patterns.parse_jsonl(line.text, path=self.path, line=line.number)
            ], {}
        matcher = patterns.Matcher(self.known, state)
        found = [
            metric
            for line in chunk.lines
            if line.attempt is not None or not self.banners
            for metric in matcher.match(
                line.text,
                attempt=self.attempt if line.attempt is None else line.attempt,
                path=self.path,
                line=line.number,
            )
        ]
        return found, matcher.state


def _readers(job: jobs.Job, known: tuple[patterns.Pattern, ...]) -> Iterator[_Reader]:
    if job.stdout_path is not None:
        # Only our own scripts write banners.
        banners = job.tracked_name is None
        yield _Reader(job.stdout_path, known, banners=banners, attempt=job.attempt)
    if job.stderr_path is not None:
        yield _Reader(job.stderr_path, known, banners=False, attempt=job.attempt)
    folder = run_folder.RunFolder(Path(job.run_dir))
    task = job.array_task_id
    metrics_file = folder.metrics_file(task or 0, array=task is not None)
    yield _Reader(str(metrics_file), None, banners=False, attempt=job.attempt)


def _read_file(
    context: contexts.Context,
    job: jobs.Job,
    reader: _Reader,
    cursor: rows.LogCursor | None,
    say: Callable[[str], None],
    enough: Callable[[], bool],
) -> int:
    stored = 0
    banner = logs.banner_pattern(
        job_id=job.raw_job_id or job.job_id or "", task=job.array_task_id or 0, name=job.name
    )
    final = job.state in jobs.TERMINAL and job.settled
    while True:
        position, state = _resume(reader.path, cursor)
        chunk = logs.read(position, banner=banner, final=final)
        found, state = reader.metrics(chunk, state)
        after = _cursor(chunk.position, state)
        if after != cursor and chunk.position != position:
            with context.store.writing() as work:
                if not work.put_log_cursor(job.row, after, expect=cursor):
                    # Another process read the same bytes and stored their metrics.
                    return stored
                stored += work.add_metrics(job.row, found)
            cursor = after
        if not chunk.more or enough():
            if chunk.note and chunk.note != logs.NO_LOG_YET:
                say(chunk.note)
            return stored


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
