"""What Slurm says of our jobs in one refresh: one squeue, and sacct for what it no longer knows."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from orchestrator import errors, jobs, tracking
from orchestrator.controller.refresh import identity
from orchestrator.controller.session import clusters, contexts
from orchestrator.slurm import failures
from orchestrator.slurm.client import Steps
from orchestrator.tracking import run_folder

#: IDs on one sacct command line (facts/peers: 5,000 IDs make 45 KB; slurmdbd likes it smaller).
SACCT_CHUNK = 200
#: sacct was measured 3 to 5 s late on an idle cluster and is minutes late on a busy one; it is
#: asked by name after so long, or when the grace is over.
SACCT_LATE_SECONDS = 60
#: After a failure sacct is left alone for so long.
SACCT_REST_SECONDS = 60
#: Jobs whose end is known and whose accounting row is missing are asked about so often.
DETAILS_EVERY_SECONDS = 300
#: sacct filters by time: an hour before the intent covers a skewed clock.
SACCT_MARGIN = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Queue:
    """squeue's rows of our jobs: by token and task, and by job ID under a name of another."""

    by_token: Mapping[tuple[str, int], Sequence[tracking.Observation]]
    by_id: Mapping[str, Sequence[tracking.Observation]]

    @functools.cached_property
    def arrays(self) -> frozenset[tuple[str, str]]:
        """Token and array ID of each array of ours."""
        return _arrays((token, row) for (token, _), rows in self.by_token.items() for row in rows)

    @functools.cached_property
    def by_hand(self) -> frozenset[tuple[str | None, datetime.datetime | None]]:
        """ID and submission of each array that is tracked."""
        return _by_hand(self.by_id)

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        if job.tracked_name is not None:
            return identity.of_queue(job, self.by_id.get(job.job_id or "", ()))
        return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))

    def stranger(self, job: jobs.Job) -> tracking.Observation | None:
        """Return the row that has the job's ID and is not known to be the job, if any."""
        if job.job_id is None or self.of(job):
            return None
        return next(iter(self.by_id.get(job.job_id, ())), None)


def array_of(job: jobs.Job, queue: Queue, accounts: Accounts) -> str | None:
    """Return the ID of the array that this task belongs to, where these answers show other tasks.

    Where there are accounts they must show them: squeue alone may be ahead of them. A task that
    still has no ID takes whatever shows its array.
    """
    if job.job_id is not None:
        answers = accounts if accounts.accounting else queue
        if job.tracked_name is not None:
            known = (job.array_job_id, job.created_at) in answers.by_hand
        else:
            known = (job.token, job.array_job_id) in answers.arrays
        return job.array_job_id if known else None
    return min(
        (array for token, array in queue.arrays | accounts.arrays if token == job.token),
        key=int,
        default=None,
    )


def ask_queue(context: contexts.Context, live: Sequence[jobs.Job], installation_id: str) -> Queue:
    ids = {job.job_id for job in live if job.job_id} | {
        job.array_job_id for job in live if job.array_job_id
    }

    def keep(name: str, job_id: str, stdout_path: str) -> bool:
        token = run_folder.token_of(name, stdout_path)
        return (token is not None and token.startswith(installation_id)) or job_id in ids

    by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
    by_id: dict[str, list[tracking.Observation]] = {}
    for row in context.scheduler.squeue(keep):
        token = run_folder.token_of(row.name, row.stdout_path)
        is_sent = token is not None and token.startswith(installation_id)
        if token is not None and is_sent:
            by_token.setdefault((token, row.array_task_id or 0), []).append(row)
        # Slurm may give one of ours the ID of another that it lost; and a database from a backup
        # may lack the row of one that it sent, which is then tracked by its ID.
        if not is_sent or row.job_id in ids:
            by_id.setdefault(row.job_id, []).append(row)
    return Queue(by_token, by_id)


@dataclasses.dataclass(frozen=True)
class Accounts:
    """sacct's rows by job ID and by token, and about whom it was asked well."""

    by_id: Mapping[str, Sequence[tracking.Observation]]
    by_token: Mapping[tuple[str, int], Sequence[tracking.Observation]]
    asked: frozenset[int] = frozenset()
    accounting: bool = True
    good: bool = False
    error: str = ""
    #: jobs that ended badly and whose steps could not be asked for
    stepless: frozenset[int] = frozenset()

    @classmethod
    def ask(
        cls,
        context: contexts.Context,
        facts: clusters.Facts,
        everyone: Sequence[jobs.Job],
        queue: Queue,
        observed_at: datetime.datetime,
        *,
        insist: bool = False,
    ) -> Accounts:
        if not facts.accounting:
            return cls({}, {}, accounting=False)
        gone = [job for job in everyone if tracking.needs_sacct(job, queue.of(job))]
        late_seconds = min(SACCT_LATE_SECONDS, clusters.grace_seconds(context, facts))
        sought = [
            job
            for job in everyone
            if job.job_id is None
            and not queue.of(job)
            and job.missing_since is not None
            and (observed_at - job.missing_since).total_seconds() >= late_seconds
        ]
        by_id: dict[str, list[tracking.Observation]] = {}
        by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
        asked: set[int] = set()
        urgent = bool(sought) or _urgent(context, facts.cluster, gone, observed_at)
        if not (urgent or (insist and gone)):
            return cls({}, {})
        error = resting(context, facts.cluster, observed_at)
        if error and not insist:
            return cls({}, {}, error=error)
        good, error = False, ""
        bad: list[jobs.Job] = []
        try:
            for ids, chunk in _chunks(gone, _asked_id):
                rows = context.scheduler.sacct(ids, _since(chunk))
                for row in with_gpus(rows, facts):
                    # A task adopted by its claim alone is known by its own number.
                    for job_id in {row.job_id, row.raw_job_id}:
                        by_id.setdefault(job_id, []).append(row)
                asked.update(job.row for job in chunk)
                good = True
            for names, chunk in _chunks(sought, _asked_name):
                rows = context.scheduler.by_name(names, _since(chunk))
                for row in with_gpus(rows, facts):
                    token = run_folder.split_name(row.name)[1] or ""
                    by_token.setdefault((token, row.array_task_id or 0), []).append(row)
                asked.update(job.row for job in chunk)
                good = True
            bad = [job for job in gone if tracking.needs_steps(_mine(job, by_id))]
            for ids, chunk in _chunks(bad, _asked_id):
                _add_steps(chunk, by_id, context.scheduler.steps(ids, _since(chunk)))
                done = {job.row for job in chunk}
                bad = [job for job in bad if job.row not in done]
        except failures.AccountingDisabled:
            return cls({}, {}, accounting=False)
        except errors.SlurmError as exc:
            # slurmdbd is away: squeue alone carries on, details are filled in later.
            error = str(exc)
            rest(context, facts.cluster, error)
        return cls(
            by_id,
            by_token,
            frozenset(asked),
            good=good,
            error=error,
            stepless=frozenset(job.row for job in bad),
        )

    @functools.cached_property
    def arrays(self) -> frozenset[tuple[str, str]]:
        """Token and array ID of each array that sacct named."""
        rows = [
            row for found in (self.by_id, self.by_token) for each in found.values() for row in each
        ]
        return _arrays((run_folder.split_name(row.name)[1] or "", row) for row in rows)

    @functools.cached_property
    def by_hand(self) -> frozenset[tuple[str | None, datetime.datetime | None]]:
        """ID and submission of each array that sacct named."""
        return _by_hand(self.by_id)

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        if job.job_id is None:
            return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))
        return _mine(job, self.by_id)


def with_gpus(
    rows: Iterable[tracking.Observation], facts: clusters.Facts
) -> list[tracking.Observation]:
    """Return sacct's rows with the number of GPUs, where Slurm counts them, also where it is 0.

    sacct lists what a job has; without AccountingStorageTRES=gres/gpu GPUs are never in that list.
    """
    if not facts.counts_gpus:
        return list(rows)
    return [row if row.gpus is not None else dataclasses.replace(row, gpus=0) for row in rows]


def _arrays(
    rows: Iterable[tuple[str, tracking.Observation]],
) -> frozenset[tuple[str, str]]:
    return frozenset(
        (token, row.array_job_id)
        for token, row in rows
        if row.array_job_id and not tracking.never_started(row)
    )


def _by_hand(
    by_id: Mapping[str, Sequence[tracking.Observation]],
) -> frozenset[tuple[str | None, datetime.datetime | None]]:
    # A job ID can be given to another array later: SubmitTime tells them apart (identity).
    rows = (row for found in by_id.values() for row in found)
    return frozenset((row.array_job_id, row.submitted_at) for row in rows if row.array_job_id)


def _add_steps(
    chunk: Sequence[jobs.Job],
    by_id: dict[str, list[tracking.Observation]],
    steps: Mapping[str, Steps],
) -> None:
    """Put what the steps say onto the newest row of each job."""
    for job in chunk:
        worst = steps.get(job.job_id or "")
        mine = _mine(job, by_id)
        if worst is None or not mine:
            continue
        newest = dataclasses.replace(
            mine[-1],
            step_state=worst.state,
            step_exit_code=worst.exit_code,
            step_exit_signal=worst.exit_signal,
        )
        by_id[job.job_id or ""] = [*mine[:-1], newest]


def _urgent(
    context: contexts.Context,
    cluster: str,
    gone: Sequence[jobs.Job],
    observed_at: datetime.datetime,
) -> bool:
    """Return whether sacct is asked now about jobs that squeue does not know.

    Those whose end is known and that only lack details go along with others, and by themselves
    every few minutes.
    """
    if any(_is_news(job, observed_at) for job in gone):
        return True
    with context.store.reading() as work:
        asked_at = work.refreshes.get(cluster).last_good_sacct_at
    patience = datetime.timedelta(seconds=DETAILS_EVERY_SECONDS)
    return bool(gone) and (asked_at is None or observed_at - asked_at >= patience)


def _is_news(job: jobs.Job, observed_at: datetime.datetime) -> bool:
    if job.state not in jobs.TERMINAL:
        return True
    ended_at = job.ended_at or job.missing_since or job.observed_at or observed_at
    return (observed_at - ended_at).total_seconds() < DETAILS_EVERY_SECONDS


def rest(context: contexts.Context, cluster: str, error: str) -> None:
    """Store that sacct failed just now."""
    with context.store.writing() as work:
        failure = json.dumps([context.clock.now().isoformat(), error])
        work.settings.put(_failed_key(cluster), failure)


def resting(context: contexts.Context, cluster: str, observed_at: datetime.datetime) -> str:
    """Return why sacct failed, when that was so lately that it is left alone; else "".

    Measured: with slurmdbd hung each sacct takes 40 s, and all the others wait behind it.
    """
    with context.store.reading() as work:
        failure = work.settings.get(_failed_key(cluster))
    if failure is None:
        return ""
    failed_at, error = json.loads(failure)
    since_seconds = (observed_at - datetime.datetime.fromisoformat(failed_at)).total_seconds()
    return str(error) if 0 <= since_seconds < SACCT_REST_SECONDS else ""


def _failed_key(cluster: str) -> str:
    return f"sacct-failure:{cluster}"


def _mine(
    job: jobs.Job, by_id: Mapping[str, Sequence[tracking.Observation]]
) -> tuple[tracking.Observation, ...]:
    """Return the rows that are this job's, oldest first: an ID can be given to another later."""
    mine = identity.of_accounts(job, by_id.get(job.job_id or "", ()))
    return tuple(dataclasses.replace(row, row_number=n) for n, row in enumerate(mine))


def _asked_id(job: jobs.Job) -> str:
    # 24.11: `sacct -j 9_10` says nothing of a task that waits, `-j 9` tells of all tasks.
    return job.array_job_id or job.job_id or ""


def _asked_name(job: jobs.Job) -> str:
    return run_folder.name_in_slurm(job)


def _since(chunk: Sequence[jobs.Job]) -> datetime.datetime:
    return min(job.created_at for job in chunk) - SACCT_MARGIN


def _chunks(
    wanted: Sequence[jobs.Job], word: Callable[[jobs.Job], str]
) -> Iterator[tuple[list[str], list[jobs.Job]]]:
    """Give the words of one command line and the jobs that they ask for, an array by one word."""
    by_word: dict[str, list[jobs.Job]] = {}
    for job in wanted:
        by_word.setdefault(word(job), []).append(job)
    words = list(by_word)
    for start in range(0, len(words), SACCT_CHUNK):
        asked = words[start : start + SACCT_CHUNK]
        yield asked, [job for each in asked for job in by_word[each]]
