"""refresh: one squeue for everything, sacct for what it no longer knows, then the exit records."""

from __future__ import annotations

import dataclasses
import datetime
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator import errors, jobs, run_folder, slurm, submission, tracking
from orchestrator.controller import context as contexts
from orchestrator.controller import unit_of_work

#: IDs on one sacct command line (facts/peers: 5,000 IDs make 45 KB; slurmdbd likes it smaller).
SACCT_CHUNK = 200
#: sacct was measured 3 to 5 s late on an idle cluster and is minutes late on a busy one.
SACCT_LATE_SECONDS = 60
#: sacct filters by time: an hour before the intent covers a skewed clock.
SACCT_MARGIN = datetime.timedelta(hours=1)
#: A submitter on another host cannot be looked at: it is given all of sbatch's time-out.
SUBMITTER_TIMEOUT_SECONDS = 200.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refreshed:
    """How fresh the database is after a refresh."""

    #: Slurm was asked now; false: the last answer was recent enough, or nothing is live
    asked: bool
    #: last good answer of squeue
    good_at: datetime.datetime | None
    #: since when Slurm does not answer; none while it does
    failing_since: datetime.datetime | None
    #: what it said
    error: str = ""
    changed: int = 0


def refresh(context: contexts.Context, *, floor_seconds: float | None = None) -> Refreshed:
    """Bring the live jobs up to date; at most one squeue an interval over all processes.

    A Slurm that is away is no error here: states stay, and `failing_since` says since when.
    """
    facts = contexts.known_facts(context)
    if facts is None:
        # No job was ever submitted from this profile, so there is nothing to ask about.
        return Refreshed(asked=False, good_at=None, failing_since=None)
    floor = context.profile.poll_floor_seconds if floor_seconds is None else floor_seconds
    with context.store.reading() as work:
        live = work.live_jobs(facts.cluster)
    if not live or not _claim(context, facts.cluster, floor):
        return freshness(context, facts.cluster)
    facts = contexts.cluster_facts(context)
    observed_at = context.clock()
    try:
        with context.store.reading() as work:
            installation_id = work.installation_id()
        rows = _squeue(context, live, installation_id)
    except errors.SlurmError as exc:
        _store_failure(context, facts.cluster, live, str(exc))
        return freshness(context, facts.cluster)
    reopened = _reopened(context, rows, live)
    everyone = [*live, *reopened]
    accounts = _Accounts.ask(context, facts, everyone, rows, observed_at)
    verdicts = [
        (
            job,
            _judge(context, facts, job, rows, accounts, observed_at),
        )
        for job in everyone
    ]
    changed = _store(context, facts.cluster, verdicts, observed_at, accounts)
    return dataclasses.replace(freshness(context, facts.cluster), asked=True, changed=changed)


def freshness(context: contexts.Context, cluster: str) -> Refreshed:
    """Return how fresh the database is, without asking Slurm."""
    with context.store.reading() as work:
        state = work.refresh_state(cluster)
    return Refreshed(
        asked=False,
        good_at=state.last_good_squeue_at,
        failing_since=state.failing_since,
        error=state.last_error or "",
    )


def _claim(context: contexts.Context, cluster: str, floor_seconds: float) -> bool:
    holder = f"{socket.gethostname()}:{os.getpid()}"
    with context.store.writing() as work:
        return work.claim_refresh(cluster, context.clock(), floor_seconds, holder)


# --- what the witnesses say ---


@dataclasses.dataclass(frozen=True)
class _Queue:
    """squeue's rows of our jobs: by token and task, and by job ID under a name of another."""

    by_token: Mapping[tuple[str, int], Sequence[tracking.Observation]]
    by_id: Mapping[str, Sequence[tracking.Observation]]

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))

    def stranger(self, job: jobs.Job) -> tracking.Observation | None:
        """Return the row that has the job's ID and not its token, if there is one."""
        if job.job_id is None or self.of(job):
            return None
        return next(iter(self.by_id.get(job.job_id, ())), None)


def _squeue(context: contexts.Context, live: Sequence[jobs.Job], installation_id: str) -> _Queue:
    ids = {job.job_id for job in live if job.job_id} | {
        job.array_job_id for job in live if job.array_job_id
    }

    def keep(name: str, job_id: str) -> bool:
        token = run_folder.split_name(name)[1]
        return (token is not None and token.startswith(installation_id)) or job_id in ids

    by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
    by_id: dict[str, list[tracking.Observation]] = {}
    for row in context.slurm.squeue(keep):
        token = run_folder.split_name(row.name)[1]
        if token is not None and token.startswith(installation_id):
            by_token.setdefault((token, row.array_task_id or 0), []).append(row)
        else:
            by_id.setdefault(row.job_id, []).append(row)
    return _Queue(by_token, by_id)


def _reopened(context: contexts.Context, rows: _Queue, live: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return settled jobs that squeue shows again: requeued by hand, or found after all."""
    known = {(job.token, job.array_task_id or 0) for job in live}
    active = {
        key
        for key, found in rows.by_token.items()
        if key not in known and any(row.state not in jobs.TERMINAL for row in found)
    }
    if not active:
        return []
    with context.store.reading() as work:
        candidates = work.jobs_of_tokens(sorted({token for token, _ in active}))
    return [job for job in candidates if (job.token, job.array_task_id or 0) in active]


@dataclasses.dataclass(frozen=True)
class _Accounts:
    """sacct's rows by job ID and by token, and about whom it was asked well."""

    by_id: Mapping[str, Sequence[tracking.Observation]]
    by_token: Mapping[tuple[str, int], Sequence[tracking.Observation]]
    asked: frozenset[int]
    accounting: bool
    good: bool

    @classmethod
    def ask(
        cls,
        context: contexts.Context,
        facts: contexts.ClusterFacts,
        everyone: Sequence[jobs.Job],
        queue: _Queue,
        observed_at: datetime.datetime,
    ) -> _Accounts:
        if not facts.accounting:
            return cls({}, {}, frozenset(), False, False)
        gone = [job for job in everyone if tracking.needs_sacct(job, queue.of(job))]
        sought = [
            job
            for job in everyone
            if job.job_id is None
            and not queue.of(job)
            and job.missing_since is not None
            and (observed_at - job.missing_since).total_seconds() >= SACCT_LATE_SECONDS
        ]
        by_id: dict[str, list[tracking.Observation]] = {}
        by_token: dict[tuple[str, int], list[tracking.Observation]] = {}
        asked: set[int] = set()
        good = False
        try:
            for chunk in _chunks(gone, SACCT_CHUNK):
                for row in context.slurm.sacct(_ids(chunk), _since(chunk)):
                    by_id.setdefault(row.job_id, []).append(row)
                asked.update(job.row for job in chunk)
                good = True
            for chunk in _chunks(sought, SACCT_CHUNK):
                names = [run_folder.slurm_name(job.name, job.token) for job in chunk]
                for row in context.slurm.by_name(names, _since(chunk)):
                    token = run_folder.split_name(row.name)[1] or ""
                    by_token.setdefault((token, row.array_task_id or 0), []).append(row)
                asked.update(job.row for job in chunk)
                good = True
            cls._add_steps(context, gone, by_id)
        except slurm.AccountingDisabled:
            return cls({}, {}, frozenset(), False, False)
        except errors.SlurmError as exc:
            # slurmdbd is away: squeue alone carries on, details are filled in later.
            context.say(f"sacct: {exc}")
        return cls(by_id, by_token, frozenset(asked), True, good)

    @staticmethod
    def _add_steps(
        context: contexts.Context,
        gone: Sequence[jobs.Job],
        by_id: dict[str, list[tracking.Observation]],
    ) -> None:
        bad = [
            job
            for job in gone
            if job.job_id and tracking.needs_steps(_mine(job, by_id.get(job.job_id, ())))
        ]
        for chunk in _chunks(bad, SACCT_CHUNK):
            steps = context.slurm.steps(_ids(chunk), _since(chunk))
            for job in chunk:
                worst = steps.get(job.job_id or "")
                rows = by_id.get(job.job_id or "", [])
                if worst is not None and rows:
                    rows[-1] = dataclasses.replace(
                        rows[-1],
                        step_state=worst.state,
                        step_exit_code=worst.exit_code,
                        step_exit_signal=worst.exit_signal,
                    )

    def of(self, job: jobs.Job) -> tuple[tracking.Observation, ...]:
        if job.job_id is None:
            return tuple(self.by_token.get((job.token, job.array_task_id or 0), ()))
        return _mine(job, self.by_id.get(job.job_id, ()))


def _mine(job: jobs.Job, rows: Iterable[tracking.Observation]) -> tuple[tracking.Observation, ...]:
    """Return the rows that are this job's: an ID can be given to another job later."""
    mine = [row for row in rows if job.token in (row.name, *_words(row))]
    return tuple(dataclasses.replace(row, row_number=n) for n, row in enumerate(mine))


def _words(row: tracking.Observation) -> tuple[str, ...]:
    token = run_folder.split_name(row.name)[1]
    line = row.submit_line or ""
    return (token or "", *(part for word in line.split() for part in word.split(".")))


def _ids(chunk: Sequence[jobs.Job]) -> list[str]:
    return [job.job_id for job in chunk if job.job_id]


def _since(chunk: Sequence[jobs.Job]) -> datetime.datetime:
    return min(job.created_at for job in chunk) - SACCT_MARGIN


def _chunks(items: Sequence[jobs.Job], size: int) -> Iterable[Sequence[jobs.Job]]:
    return (items[start : start + size] for start in range(0, len(items), size))


# --- judging and storing ---


def _judge(
    context: contexts.Context,
    facts: contexts.ClusterFacts,
    job: jobs.Job,
    queue: _Queue,
    accounts: _Accounts,
    observed_at: datetime.datetime,
) -> tracking.Verdict:
    folder = run_folder.RunFolder(Path(job.run_dir))
    task = job.array_task_id or 0
    rows = queue.of(job)
    reused = False
    stranger = queue.stranger(job)
    if stranger is not None:
        # A person may rename a job that waits: only Slurm's own papers tell it from another job.
        if job.token in (context.slurm.show_job_text(stranger.raw_job_id) or ""):
            rows = (stranger,)
        else:
            reused = True
    finished = not rows or any(row.state in jobs.TERMINAL for row in rows)
    attempts = folder.attempts(task) if finished else []
    witnesses = tracking.Witnesses(
        squeue=rows,
        sacct=accounts.of(job),
        record=_record(folder, job, task, attempts, observed_at) if attempts else None,
        owner=folder.owner(task) if finished else None,
        newest_attempt=attempts[-1] if attempts else None,
        reused=reused,
    )
    now = context.clock()
    return tracking.judge(
        job,
        witnesses,
        tracking.Answers(
            squeue_at=observed_at,
            sacct_asked=job.row in accounts.asked,
            accounting=accounts.accounting,
        ),
        submitter_alive=_submitter_alive(job, now),
        grace_seconds=context.grace_seconds(facts),
        now=now,
    )


def _record(
    folder: run_folder.RunFolder,
    job: jobs.Job,
    task: int,
    attempts: Sequence[int],
    observed_at: datetime.datetime,
) -> tracking.Observation | None:
    record = folder.exit_record(task, attempts[-1])
    if record is None or not record.fits(
        token=job.token, owner=folder.owner(task), task=task, attempt=attempts[-1]
    ):
        return None
    return record.observation(name=run_folder.slurm_name(job.name, job.token), at=observed_at)


def _submitter_alive(job: jobs.Job, now: datetime.datetime) -> bool:
    if job.state is not jobs.JobState.SUBMITTING or job.submitter is None:
        return False
    alive = submission.is_alive(job.submitter)
    if alive is None:
        return (now - job.created_at).total_seconds() < SUBMITTER_TIMEOUT_SECONDS
    return alive


def _store(
    context: contexts.Context,
    cluster: str,
    verdicts: Sequence[tuple[jobs.Job, tracking.Verdict]],
    observed_at: datetime.datetime,
    accounts: _Accounts,
) -> int:
    changed = 0
    with context.store.writing() as work:
        for job, verdict in verdicts:
            changed += _store_one(work, job, verdict)
        work.finish_refresh(
            cluster,
            squeue_at=observed_at,
            sacct_at=observed_at if accounts.good else None,
        )
    return changed


def _store_one(work: unit_of_work.UnitOfWork, job: jobs.Job, verdict: tracking.Verdict) -> int:
    if not (verdict.changes or verdict.events):
        return 0
    if not work.change_job(job.row, verdict.changes, unless_newer_than=job.observed_at):
        # Another process stored a newer answer in the meantime.
        return 0
    for attempt in verdict.attempts:
        work.put_attempt(job.row, attempt)
    for event in verdict.events:
        work.add_event(job.row, event)
    return 1


def _store_failure(
    context: contexts.Context, cluster: str, live: Sequence[jobs.Job], error: str
) -> None:
    with context.store.writing() as work:
        for job in live:
            if job.misses:
                # Absence counts only over answers that follow one another (tracking.adopting).
                work.change_job(job.row, {"misses": 0, "missing_since": None})
        work.finish_refresh(cluster, failed_at=context.clock(), error=error)
