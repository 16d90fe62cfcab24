"""Reads logs again with the current patterns, and replaces the stored metrics."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import jobs, metrics, specs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts, stores

GONE = "the log is gone: its old metrics stay"
CHANGED = "the log was truncated or replaced: its old metrics stay"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reparsed:
    job: jobs.Job
    path: str
    #: number of metrics
    before: int
    after: int
    #: why the old metrics stay; "": they were replaced
    kept: str


def reparse(
    context: contexts.Context, selected: Sequence[jobs.Job], names: Sequence[str] = ()
) -> Iterator[Reparsed]:
    """Read the jobs' logs again, with the named patterns (none: those of the spec).

    Metrics of metrics.jsonl stay. The metrics of a job change in one transaction. The logs are read
    into a temporary database first, so that the long reading does not block other writers.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-reparse-") as folder:
        for number, job in enumerate(selected):
            path = Path(folder, str(number), "numbers.db")
            store = stores.Store(
                path, shared_folders=context.configuration.shared_folders, setting="TMPDIR"
            )
            with store as temporary:
                # The run folder of the copy is empty: it has no metrics.jsonl.
                row = _read(context, temporary, job, names, path.parent)
                yield from _replace(context, temporary, job, row)


def _read(
    context: contexts.Context,
    temporary: stores.Store,
    job: jobs.Job,
    names: Sequence[str],
    folder: Path,
) -> int:
    """Read the logs of a job into the temporary database; return the job's row there."""
    with context.store.reading() as work:
        submission = work.jobs.submission(job.token)
    assert submission is not None, "foreign key"
    spec = specs.from_json(submission.spec)
    if names:
        spec = dataclasses.replace(
            spec, metrics=dataclasses.replace(spec.metrics, patterns=tuple(names))
        )
    submission = dataclasses.replace(submission, spec=specs.to_json(spec), run_dir=str(folder))
    copied = (
        *("state", "settled", "job_id", "raw_job_id", "array_job_id", "attempt"),
        *("tracked_name", "stdout_path", "stderr_path"),
    )
    with temporary.writing() as work:
        (copy,) = work.jobs.add_submission(
            submission,
            array_tasks=None if job.array_task_id is None else [job.array_task_id],
            **{name: getattr(job, name) for name in copied},
        )
    ingest.ingest(dataclasses.replace(context, store=temporary), [copy])
    return copy.row


def _replace(
    context: contexts.Context, temporary: stores.Store, job: jobs.Job, row: int
) -> list[Reparsed]:
    results = []
    with temporary.reading() as read, context.store.writing() as work:
        before = {cursor.path: cursor for cursor in work.log_cursors.of(job.row)}
        after = {cursor.path: cursor for cursor in read.log_cursors.of(row)}
        for path in dict.fromkeys((job.stdout_path, job.stderr_path)):
            if path is None:
                continue
            old_count, restarted = work.metrics.file_summary(job.row, path)
            count = old_count
            kept = _reason_to_keep(path, before.get(path), restarted=restarted)
            if not kept and path in after:
                work.metrics.delete_file(job.row, path)
                pages = read.metrics.of_file(row, path)
                count = sum(work.metrics.add(job.row, page) for page in pages)
                work.log_cursors.move(job.row, after[path], expect=before.get(path))
            if count or old_count or kept:
                results.append(
                    Reparsed(job=job, path=path, before=old_count, after=count, kept=kept)
                )
    return results


def _reason_to_keep(path: str, cursor: metrics.LogCursor | None, *, restarted: bool) -> str:
    """Return why the part of the log with the old metrics cannot be read again; "": it can."""
    if cursor is None or not cursor.inode:
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return GONE
    is_same = status.st_ino == cursor.inode and status.st_size >= cursor.offset_bytes
    return "" if is_same and not restarted else CHANGED
