"""Queries of one refresh: one squeue, and sacct for the jobs that squeue does not list any more."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from db import unit_of_work
from orchestrator import errors, jobs, tracking
from orchestrator.controller.refresh import identity
from orchestrator.controller.session import clusters, contexts
from orchestrator.files import run_folder
from orchestrator.slurm import failures

#: IDs on one sacct command line: 5,000 IDs make 45 KB, and slurmdbd prefers short queries.
SACCT_CHUNK = 200
#: sacct is 3 to 5 s late on an idle cluster (measured), and minutes late on a busy one. A job
#: without an ID is searched by name after this time, or when the grace is over.
SACCT_LATE_SECONDS = 60
#: sacct is not called for so long after a failure. Measured: with slurmdbd hung each call takes
#: 40 s, and all other queries wait for it.
SACCT_PAUSE_SECONDS = 60
#: How often sacct is called only for jobs whose end is known and whose accounting row is missing.
DETAILS_EVERY_SECONDS = 300
#: sacct filters by time: an hour before the intent covers a clock that differs.
SACCT_MARGIN = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of squeue or sacct, by job ID and, for jobs with our token, by token and array task."""

    by_id: Mapping[str, Sequence[tracking.Observation]] = dataclasses.field(default_factory=dict)
    by_token: Mapping[tuple[str, int], Sequence[tracking.Observation]] = dataclasses.field(
        default_factory=dict
    )

    def all(self) -> Iterator[tracking.Observation]:
        for by_key in (self.by_id, self.by_token):
            for rows in by_key.values():
                yield from rows

    @functools.cached_property
    def arrays(self) -> frozenset[tuple[str | None, str]]:
        """Token and ID of the arrays."""
        return frozenset(
            (run_folder.token_of(row.name, row.stdout_path), row.array_job_id)
            for row in self.all()
            if row.array_job_id and not tracking.never_started(row)
        )

    @functools.cached_property
    def submit_times(self) -> frozenset[tuple[str | None, datetime.datetime | None]]:
        """ID and SubmitTime of the arrays: a job ID can be given to another array later."""
        return frozenset((row.array_job_id, row.submitted_at) for row in self.all())


class SqueueRows(Rows):
    """The rows of squeue; by job ID only those that are not known to be ours."""

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        if job.tracked_name is not None:
            return identity.rows_in_squeue(job, self.by_id.get(job.job_id or "", ()))
        return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))

    def unidentified(self, job: jobs.Job) -> tracking.Observation | None:
        """Return a row with the job's ID that is not known to be the job."""
        if job.job_id is None or self.of(job):
            return None
        return next(iter(self.by_id.get(job.job_id, ())), None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SacctRows(Rows):
    """The rows of sacct, and for which jobs it was queried successfully."""

    queried: frozenset[int] = frozenset()
    accounting: bool = True
    succeeded: bool = False
    error: str = ""
    #: failed jobs whose steps could not be queried
    without_steps: frozenset[int] = frozenset()

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        if job.job_id is None:
            return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))
        return _rows_of(job, self.by_id)


def sacct_pause(work: unit_of_work.UnitOfWork, cluster: str, now: datetime.datetime) -> str:
    """Return why sacct failed, if that was so recently that it is not called; else ""."""
    failed_at, error = json.loads(work.settings.get(_failure_key(cluster)) or '[null, ""]')
    if failed_at is None:
        return ""
    seconds = (now - datetime.datetime.fromisoformat(failed_at)).total_seconds()
    return str(error) if 0 <= seconds < SACCT_PAUSE_SECONDS else ""


def array_id(job: jobs.Job, queue: SqueueRows, accounts: SacctRows) -> str | None:
    """Return the ID of the array that this task belongs to, if other tasks of it are listed.

    With accounting sacct must list them: squeue alone may be ahead of it. A task that has no ID yet
    takes any array with its token.
    """
    if job.job_id is not None:
        rows: Rows = accounts if accounts.accounting else queue
        if job.tracked_name is not None:
            is_listed = (job.array_job_id, job.created_at) in rows.submit_times
        else:
            is_listed = (job.token, job.array_job_id) in rows.arrays
        return job.array_job_id if is_listed else None
    arrays = queue.arrays | accounts.arrays
    return min((array for token, array in arrays if token == job.token), key=int, default=None)


def query_queue(
    context: contexts.Context, known: Sequence[jobs.Job], installation_id: str
) -> SqueueRows:
    """Return the rows of squeue that have our tokens or the IDs of these jobs."""
    ids = {job.job_id for job in known} | {job.array_job_id for job in known}

    def our_token(name: str, stdout_path: str | None) -> str | None:
        token = run_folder.token_of(name, stdout_path)
        return token if token is not None and token.startswith(installation_id) else None

    def keep(name: str, job_id: str, stdout_path: str) -> bool:
        return our_token(name, stdout_path) is not None or job_id in ids

    by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
    by_id: dict[str, list[tracking.Observation]] = {}
    for row in context.scheduler.squeue(keep):
        token = our_token(row.name, row.stdout_path)
        if token is not None:
            by_token.setdefault((token, row.array_task_id or 0), []).append(row)
        # Slurm may give the ID of a job that it lost to another one of ours; and a restored
        # database may lack the row of a job that is then tracked by its ID.
        if token is None or row.job_id in ids:
            by_id.setdefault(row.job_id, []).append(row)
    return SqueueRows(by_token=by_token, by_id=by_id)


def query_sacct(
    context: contexts.Context,
    facts: clusters.Facts,
    known: Sequence[jobs.Job],
    queue: SqueueRows,
    observed_at: datetime.datetime,
    *,
    good_at: datetime.datetime | None,
    error: str,
    force: bool = False,
) -> SacctRows:
    """Query sacct if necessary; `force`: also while it pauses after a failure.

    good_at: when it last succeeded; error: what sacct_pause() returns.
    """
    if not facts.accounting:
        return SacctRows(accounting=False)
    by_id: dict[str, list[tracking.Observation]] = {}
    by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
    missing = [job for job in known if tracking.needs_sacct(job, queue.of(job))]
    late_seconds = min(SACCT_LATE_SECONDS, clusters.grace_seconds(context, facts))
    without_id = [
        job
        for job in known
        if job.job_id is None
        and not queue.of(job)
        and job.missing_since is not None
        and (observed_at - job.missing_since).total_seconds() >= late_seconds
    ]
    is_urgent = without_id or (missing and _is_urgent(missing, good_at, observed_at))
    if not is_urgent and not (force and missing):
        return SacctRows()
    if error and not force:
        return SacctRows(error=error)
    error, queried, without_steps = "", set[int](), set[int]()
    try:
        for ids, chunk in _chunks(missing, _queried_id):
            for row in with_gpus(context.scheduler.sacct(ids, _since(chunk)), facts):
                # A task that was adopted by its owner file is known by its own number.
                for job_id in {row.job_id, row.raw_job_id}:
                    by_id.setdefault(job_id, []).append(row)
            queried.update(job.row for job in chunk)
        for names, chunk in _chunks(without_id, run_folder.name_in_slurm):
            for row in with_gpus(context.scheduler.by_name(names, _since(chunk)), facts):
                token = run_folder.split_name(row.name)[1] or ""
                by_token.setdefault((token, row.array_task_id or 0), []).append(row)
            queried.update(job.row for job in chunk)
        unknown_steps = [job for job in missing if tracking.needs_steps(_rows_of(job, by_id))]
        without_steps = {job.row for job in unknown_steps}
        for ids, chunk in _chunks(unknown_steps, _queried_id):
            _add_steps(chunk, by_id, context.scheduler.steps(ids, _since(chunk)))
            without_steps.difference_update(job.row for job in chunk)
    except failures.AccountingDisabled:
        return SacctRows(accounting=False)
    except errors.SlurmError as exc:
        # slurmdbd is away: squeue is enough for now, details follow later.
        error = str(exc)
        pause_sacct(context, facts.cluster, error)
    return SacctRows(
        by_id=by_id,
        by_token=by_token,
        queried=frozenset(queried),
        succeeded=bool(queried),
        error=error,
        without_steps=frozenset(without_steps),
    )


def with_gpus(
    rows: Iterable[tracking.Observation], facts: clusters.Facts
) -> list[tracking.Observation]:
    """Return rows of sacct with the number of GPUs, also if it is 0, if Slurm counts GPUs.

    sacct lists what a job has; without AccountingStorageTRES=gres/gpu GPUs are never in that list.
    """
    if not facts.counts_gpus:
        return list(rows)
    return [row if row.gpus is not None else dataclasses.replace(row, gpus=0) for row in rows]


def pause_sacct(context: contexts.Context, cluster: str, error: str) -> None:
    with context.store.writing() as work:
        failure = json.dumps([context.clock.now().isoformat(), error])
        work.settings.put(_failure_key(cluster), failure)


def _failure_key(cluster: str) -> str:
    return f"sacct-failure:{cluster}"


def _is_urgent(
    missing: Sequence[jobs.Job],
    good_at: datetime.datetime | None,
    observed_at: datetime.datetime,
) -> bool:
    """Return whether sacct is called now for jobs that squeue does not list.

    Jobs whose end is known and that only lack details are queried together with others, and alone
    every few minutes.
    """
    for job in missing:
        ended_at = job.ended_at or job.missing_since or job.observed_at or observed_at
        is_recent = (observed_at - ended_at).total_seconds() < DETAILS_EVERY_SECONDS
        if job.state not in jobs.TERMINAL or is_recent:
            return True
    return good_at is None or (observed_at - good_at).total_seconds() >= DETAILS_EVERY_SECONDS


def _add_steps(
    chunk: Sequence[jobs.Job],
    by_id: dict[str, list[tracking.Observation]],
    steps: Mapping[str, tracking.Observation],
) -> None:
    """Add the worst state and exit code of the steps to the newest row of each job."""
    for job in chunk:
        worst = steps.get(job.job_id or "")
        rows = _rows_of(job, by_id)
        if worst is not None and rows:
            names = ("step_state", "step_exit_code", "step_exit_signal")
            of_steps = {name: getattr(worst, name) for name in names}
            newest = dataclasses.replace(rows[-1], **of_steps)
            by_id[job.job_id or ""] = [*rows[:-1], newest]


def _rows_of(
    job: jobs.Job, by_id: Mapping[str, Sequence[tracking.Observation]]
) -> tuple[tracking.Observation, ...]:
    """Return the rows of this job, oldest first: an ID can be given to another job later."""
    rows = identity.rows_in_sacct(job, by_id.get(job.job_id or "", ()))
    return tuple(dataclasses.replace(row, row_number=n) for n, row in enumerate(rows))


def _queried_id(job: jobs.Job) -> str:
    # 24.11: `sacct -j 9_10` prints nothing about a pending task, `-j 9` prints all tasks.
    return job.array_job_id or job.job_id or ""


def _since(chunk: Sequence[jobs.Job]) -> datetime.datetime:
    return min(job.created_at for job in chunk) - SACCT_MARGIN


def _chunks(
    selected: Sequence[jobs.Job], argument_of: Callable[[jobs.Job], str]
) -> Iterator[tuple[list[str], list[jobs.Job]]]:
    """Yield the arguments of each command line and their jobs; an array has one argument."""
    by_argument: dict[str, list[jobs.Job]] = {}
    for job in selected:
        by_argument.setdefault(argument_of(job), []).append(job)
    arguments = list(by_argument)
    for start in range(0, len(arguments), SACCT_CHUNK):
        part = arguments[start : start + SACCT_CHUNK]
        yield part, [job for argument in part for job in by_argument[argument]]
