"""refresh: one squeue for everything, sacct for what it no longer knows, then the exit records."""

from __future__ import annotations

import dataclasses
import datetime
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs, run_folder, tracking
from orchestrator.controller import context as contexts
from orchestrator.controller import log_files, unit_of_work, witnesses

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
    #: why sacct did not answer just now; details are filled in when it does
    accounts_error: str = ""


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
    # Without live jobs nothing is expected of Slurm; who asks outright (floor 0) is still answered,
    # so that a job requeued by hand after its end is seen.
    if not (live or floor == 0) or not _claim(context, facts.cluster, floor):
        return freshness(context, facts.cluster)
    observed_at = context.clock()
    try:
        facts = contexts.cluster_facts(context)
        with context.store.reading() as work:
            installation_id = work.installation_id()
        rows = witnesses.ask_queue(context, live, installation_id)
        everyone = [*live, *_reopened(context, rows, live)]
        accounts = witnesses.Accounts.ask(context, facts, everyone, rows, observed_at)
        verdicts = [
            (job, _judge(context, facts, job, rows, accounts, observed_at)) for job in everyone
        ]
    except errors.SlurmError as exc:
        _store_failure(context, facts.cluster, live, str(exc))
        return freshness(context, facts.cluster)
    changed = _store(context, facts.cluster, verdicts, observed_at, accounts)
    return dataclasses.replace(
        freshness(context, facts.cluster),
        asked=True,
        changed=changed,
        accounts_error=accounts.error,
    )


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


def _reopened(
    context: contexts.Context, rows: witnesses.Queue, live: Sequence[jobs.Job]
) -> list[jobs.Job]:
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


def _judge(
    context: contexts.Context,
    facts: contexts.ClusterFacts,
    job: jobs.Job,
    queue: witnesses.Queue,
    accounts: witnesses.Accounts,
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
    seen = tracking.Witnesses(
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
        seen,
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
    # submitit takes a fifth of a second to import, and few refreshes meet such a job.
    from orchestrator import submission

    alive = submission.is_alive(job.submitter)
    if alive is None:
        return (now - job.created_at).total_seconds() < SUBMITTER_TIMEOUT_SECONDS
    return alive


def _store(
    context: contexts.Context,
    cluster: str,
    verdicts: Sequence[tuple[jobs.Job, tracking.Verdict]],
    observed_at: datetime.datetime,
    accounts: witnesses.Accounts,
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
    changes = dict(verdict.changes)
    job_id = changes.get("job_id")
    if isinstance(job_id, str):
        changes.update(log_files.of(work, job, job_id))
    if not work.change_job(job.row, changes, unless_newer_than=job.observed_at):
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
