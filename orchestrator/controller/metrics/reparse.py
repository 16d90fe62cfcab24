"""reparse: today's patterns over yesterday's logs."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import jobs, metrics, specs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts, stores

GONE = "the log is gone: its old numbers stay"
CUT = "the log was cut or replaced: its old numbers stay"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reparsed:
    """What became of the numbers of one log."""

    job: jobs.Job
    path: str
    #: numbers that were stored
    before: int
    #: numbers that are stored now
    after: int
    #: why the old ones stay; "" where they do not
    kept: str


def reparse(
    context: contexts.Context, wanted: Sequence[jobs.Job], names: Sequence[str] = ()
) -> Iterator[Reparsed]:
    """Read the jobs' logs anew, with these patterns (none: as ever), and yield what came of each.

    The numbers of one job change in one transaction: whatever is killed, a job has its old ones or
    its new ones. Those of metrics.jsonl stay as they are: no pattern made them.

    The logs are read into a database of its own, by the same road as ever, so that no log is read
    while others wait to write. What others read meanwhile is read again from there.
    """
    with tempfile.TemporaryDirectory(prefix="orchestrator-reparse-") as folder:
        for number, job in enumerate(wanted):
            path = Path(folder, str(number), "numbers.db")
            own = stores.Store(
                path, shared_folders=context.configuration.shared_folders, setting="TMPDIR"
            )
            with own as store:
                beside = dataclasses.replace(context, store=store)
                # Without a metrics.jsonl: there is none in this folder.
                row = _read(context, beside, job, names, path.parent)
                yield from _replace(context, store, job, row)


def _read(
    context: contexts.Context,
    beside: contexts.Context,
    job: jobs.Job,
    names: Sequence[str],
    folder: Path,
) -> int:
    """Read the logs of a job into the other database; returns its row there."""
    with context.store.reading() as work:
        submission = work.jobs.submission(job.token)
    assert submission is not None, "each job belongs to one (foreign key)"
    spec = specs.from_json(submission.spec)
    if names:
        spec = dataclasses.replace(
            spec, metrics=dataclasses.replace(spec.metrics, patterns=tuple(names))
        )
    papers = dataclasses.replace(submission, spec=specs.to_json(spec), run_dir=str(folder))
    fields = {
        name: getattr(job, name)
        for name in ("state", "settled", "job_id", "raw_job_id", "array_job_id", "attempt")
    }
    fields |= {"tracked_name": job.tracked_name, "stdout_path": job.stdout_path}
    tasks = None if job.array_task_id is None else [job.array_task_id]
    with beside.store.writing() as work:
        (copy,) = work.jobs.add_submission(
            papers, array_tasks=tasks, stderr_path=job.stderr_path, **fields
        )
    ingest.ingest(beside, [copy])
    return copy.row


def _replace(
    context: contexts.Context, other: stores.Store, job: jobs.Job, row: int
) -> list[Reparsed]:
    """Put the numbers of the job's logs in place of those that are stored."""
    made = []
    with other.reading() as read, context.store.writing() as work:
        before = {cursor.path: cursor for cursor in work.log_cursors.of(job.row)}
        after = {cursor.path: cursor for cursor in read.log_cursors.of(row)}
        for path in dict.fromkeys((job.stdout_path, job.stderr_path)):
            if path is None:
                continue
            old = work.metrics.file_summary(job.row, path)
            kept = _kept(path, before.get(path), old)
            count = old.count
            if not kept and path in after:
                work.metrics.delete_file(job.row, path)
                count = sum(
                    work.metrics.add(job.row, part) for part in read.metrics.of_file(row, path)
                )
                work.log_cursors.move(job.row, after[path], expect=before.get(path))
            if count or old.count or kept:
                made.append(Reparsed(job=job, path=path, before=old.count, after=count, kept=kept))
    return made


def _kept(path: str, cursor: metrics.LogCursor | None, old: metrics.FileSummary) -> str:
    """Return why what was read of this file cannot be read again; "" where it can."""
    if cursor is None or not cursor.inode:
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return GONE
    same = status.st_ino == cursor.inode and status.st_size >= cursor.offset_bytes
    return "" if same and not old.restarted else CUT
