"""The logs of jobs: their paths and parts, and new lines until the jobs end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.logs import following, searching


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogPart:
    """The part of a job's log that is to be read."""

    job: jobs.Job
    path: str
    span: searching.Span = searching.WHOLE
    #: Whether it is the separate error log.
    is_stderr: bool = False


def path_of(job: jobs.Job, *, stderr: bool = False) -> str | None:
    """Return the path of the log, or of the error log if that is a separate file."""
    return job.stderr_path if stderr and job.stderr_path else job.stdout_path


def part(
    context: contexts.Context, job: jobs.Job, *, stderr: bool = False, attempt: int | None = None
) -> LogPart:
    """Return the log of a job, or the part of one attempt, from 0.

    Raises NotFoundError with the reason if there is none, and ConflictError if the log of a tracked
    job does not mark its attempts.
    """
    path = path_of(job, stderr=stderr)
    if path is None:
        raise errors.NotFoundError(missing(context, job, None))
    if attempt is None:
        return LogPart(job=job, path=path)
    if job.tracked_name is not None:
        raise errors.ConflictError("the log of a tracked job does not mark its attempts")
    try:
        span = searching.attempt_span(path, job, attempt)
    except errors.NotFoundError:
        raise errors.NotFoundError(missing(context, job, path)) from None
    if span is None:
        raise errors.NotFoundError(f"the log has no attempt {attempt} of {job.job_id}")
    return LogPart(job=job, path=path, span=span)


def follow(
    context: contexts.Context,
    by_row: dict[int, jobs.Job],
    *,
    lines: int | None,
    stderr: bool = False,
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the last lines of each log and then new ones, with the row of the job, until all end.

    lines: how many of the existing ones; None: all. The jobs in `by_row` are kept up to date.
    """

    def look() -> tuple[bool, Mapping[int, str]]:
        is_live = update(context, by_row)
        paths = {row: path_of(job, stderr=stderr) for row, job in by_row.items()}
        return is_live, {row: path for row, path in paths.items() if path is not None}

    return following.follow_all(look, wait=context.clock.sleep, lines=lines)


def update(context: contexts.Context, by_row: dict[int, jobs.Job]) -> bool:
    """Refresh the jobs in `by_row` if that is due; return whether one of them is still live."""
    # It imports everything that talks to Slurm.
    from orchestrator.controller.actions import wait

    return wait.update(context, by_row)


def missing(context: contexts.Context, job: jobs.Job, path: str | None) -> str:
    """Return why there is no log; path: where it should be."""
    if path is None and job.tracked_name is not None:
        return (
            f"the log of {job.job_id} is unknown: "
            f"`orchestrator track {job.job_id} --log PATH` sets it"
        )
    if path is None:
        return f"no log yet: {naming.name_of(job)} is {job.state}"
    with context.store.reading() as work:
        now = work.jobs.get(job.row) or job
        cursors = work.log_cursors.of(job.row)
    from orchestrator.controller.prune import marks

    if pruned := marks.note(context, job):
        return f"no log: {pruned}; `orchestrator metrics {naming.name_of(job)}` shows its metrics"
    if any(cursor.path == path and cursor.inode for cursor in cursors):
        return f"the log {path} was deleted"
    if now.state in jobs.TERMINAL:
        return f"no log: {path} does not exist ({now.state})"
    return f"no log yet: {path} ({now.state})"
