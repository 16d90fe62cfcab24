"""refresh: one squeue for everything, sacct for what it no longer knows, then the exit records."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs, run_folder, tracking
from orchestrator.controller import context as contexts
from orchestrator.controller import identity, log_files, unit_of_work, witnesses

#: A submitter on another host cannot be looked at: it is given all of sbatch's time-out.
SUBMITTER_TIMEOUT_SECONDS = 200.0


#: Ended jobs that are tracked are looked for so long: slurmctld forgets after MinJobAge.
REOPENED_WITHIN = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refreshed:
    """How fresh the database is after a refresh."""

    #: Slurm was asked now; false: the last answer was recent enough, or nothing is live
    asked: bool = False
    #: last good answer of squeue
    good_at: datetime.datetime | None = None
    #: since when Slurm does not answer; none while it does
    failing_since: datetime.datetime | None = None
    #: what it said
    error: str = ""
    #: when Slurm was last asked, well or not
    tried_at: datetime.datetime | None = None
    #: another process is asking Slurm at this moment
    busy: bool = False
    changed: int = 0
    #: why sacct did not answer just now; details are filled in when it does
    accounts_error: str = ""


def refresh(context: contexts.Context, *, floor_seconds: float | None = None) -> Refreshed:
    """Bring the live jobs up to date; at most one squeue an interval over all processes.

    A Slurm that is away is no error here: states stay, and `failing_since` says since when.
    """
    floor = context.profile.poll_floor_seconds if floor_seconds is None else floor_seconds
    with context.store.reading() as work:
        # Slurm is looked at before something is sent to it again.
        expected = work.jobs(unit_of_work.JobQuery(due=context.clock(), limit=1))
    # Without live jobs nothing is expected of Slurm; who asks outright (floor 0) is still answered,
    # so that a job requeued by hand after its end is seen.
    if not expected and (floor > 0 or contexts.known_facts(context) is None):
        return _unasked(context)
    try:
        facts = contexts.cluster_facts(context)
    except errors.SlurmError as exc:
        return Refreshed(failing_since=context.clock(), error=str(exc))
    holder = f"{socket.gethostname()}:{os.getpid()}"
    with context.store.writing() as work:
        if not work.claim_refresh(facts.cluster, context.clock(), floor, holder):
            busy = work.refresh_state(facts.cluster).holder not in (None, holder)
            return dataclasses.replace(_unasked(context), busy=busy)
    try:
        return _ask(context, facts, holder, insist=floor == 0)
    except BaseException:
        # Ctrl-C, a full disk: nobody else would ask until the claim runs out by itself.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.finish_refresh(facts.cluster, holder=holder)
        raise


def _unasked(context: contexts.Context) -> Refreshed:
    facts = contexts.known_facts(context)
    return Refreshed() if facts is None else freshness(context, facts.cluster)


def _ask(
    context: contexts.Context, facts: contexts.ClusterFacts, holder: str, *, insist: bool
) -> Refreshed:
    # Read after the claim: what another process stored before it is not judged again.
    with context.store.reading() as work:
        live = work.live_jobs(facts.cluster)
        installation_id = work.installation_id()
        ended = _tracked_and_ended(work, context.clock())
    observed_at = context.clock()
    try:
        queue = witnesses.ask_queue(context, [*live, *ended], installation_id)
        reopened = _reopened(context, queue, live)
        reopened += [job for job in ended if tracking.is_news(job, queue.of(job))]
        everyone = [*live, *reopened]
        accounts = witnesses.Accounts.ask(
            context, facts, everyone, queue, observed_at, insist=insist
        )
        verdicts = [
            (job, _judge(context, facts, job, queue, accounts, observed_at)) for job in everyone
        ]
    except errors.SlurmError as exc:
        _store_failure(context, facts.cluster, holder, live, str(exc))
        return freshness(context, facts.cluster)
    changed = 0
    with context.store.writing() as work:
        seen = [job.row for job, verdict in verdicts if _is_unchanged(verdict)]
        work.confirm_jobs(seen, observed_at)
        for job, verdict in verdicts:
            if not _is_unchanged(verdict):
                changed += _store_one(work, job, verdict)
        work.finish_refresh(
            facts.cluster,
            holder=holder,
            squeue_at=observed_at,
            sacct_at=observed_at if accounts.good else None,
        )
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
        good_at=state.last_good_squeue_at,
        tried_at=state.last_tried_at,
        failing_since=state.failing_since,
        error=state.last_error or "",
    )


def _reopened(
    context: contexts.Context, queue: witnesses.Queue, live: Sequence[jobs.Job]
) -> list[jobs.Job]:
    """Return settled jobs of which squeue has news: requeued by hand, or found after all."""
    known = {(job.token, job.array_task_id or 0) for job in live}
    tokens = {token for token, task in queue.by_token if (token, task) not in known}
    if not tokens:
        return []
    with context.store.reading() as work:
        settled = [job for job in work.jobs_of_tokens(sorted(tokens)) if job.settled]
    return [job for job in settled if tracking.is_news(job, queue.of(job))]


def _tracked_and_ended(work: unit_of_work.UnitOfWork, now: datetime.datetime) -> list[jobs.Job]:
    """Return settled jobs that are known to squeue by their ID alone, and may be requeued yet."""
    since = now - REOPENED_WITHIN
    query = unit_of_work.JobQuery(tracked=True, since=since, limit=None)
    return [job for job in work.jobs(query) if job.settled]


def _is_renamed(
    context: contexts.Context, job: jobs.Job, stranger: tracking.Observation
) -> bool | None:
    """Return whether the row with the job's ID is the job under a new name; None: not known.

    A person may rename a job that waits: only Slurm's own papers tell it from another job.
    """
    if job.tracked_name is not None and not identity.may_be(job, stranger):
        return False
    papers = context.slurm.show_job(stranger.raw_job_id)
    if papers is None:
        return None
    return identity.in_papers(context, job, papers)


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
        renamed = _is_renamed(context, job, stranger)
        rows = (stranger,) if renamed else rows
        reused = renamed is False
    several = len({row.job_id for row in rows} | {job.job_id or ""}) > 1
    finished = several or not rows or any(row.state in jobs.TERMINAL for row in rows)
    attempts = folder.attempts(task) if finished else []
    seen = tracking.Witnesses(
        squeue=rows,
        sacct=accounts.of(job),
        record=_record(folder, job, task, attempts, observed_at) if attempts else None,
        owner=folder.owner(task) if finished else None,
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
            steps_known=job.row not in accounts.stepless,
        ),
        submitter_alive=submitter_alive(job, now),
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
    if attempts[-1] < job.attempt:
        # An earlier attempt's: this one never began.
        return None
    record = folder.exit_record(task, attempts[-1])
    if record is None or not record.fits(
        token=job.token, owner=folder.owner(task), task=task, attempt=attempts[-1]
    ):
        return None
    return record.observation(name=run_folder.slurm_name(job.name, job.token), at=observed_at)


def submitter_alive(job: jobs.Job, now: datetime.datetime) -> bool:
    """Return whether the process that is submitting the job may still be at it."""
    if job.state is not jobs.JobState.SUBMITTING or job.submitter is None:
        return False
    # submitit takes a fifth of a second to import, and few refreshes meet such a job.
    from orchestrator import submission

    alive = submission.is_alive(job.submitter)
    if alive is None:
        sent_at = job.grace_since or job.created_at
        return (now - sent_at).total_seconds() < SUBMITTER_TIMEOUT_SECONDS
    return alive


def _is_unchanged(verdict: tracking.Verdict) -> bool:
    return not verdict.events and set(verdict.changes) == {"observed_at"}


def _store_one(work: unit_of_work.UnitOfWork, job: jobs.Job, verdict: tracking.Verdict) -> int:
    if not (verdict.changes or verdict.events):
        return 0
    changes = dict(verdict.changes)
    job_id = changes.get("job_id")
    if isinstance(job_id, str):
        changes.update(log_files.of(work, job, job_id))
    if not work.change_job(job.row, changes, version=job.version):
        # Another process changed the row meanwhile: the next refresh judges it anew.
        return 0
    earlier = {attempt.number: attempt for attempt in work.attempts(job.row)}
    for attempt in verdict.attempts:
        work.put_attempt(job.row, tracking.merged(earlier.get(attempt.number), attempt))
    for event in verdict.events:
        work.add_event(job.row, event)
    return 1 if verdict.events else 0


def _store_failure(
    context: contexts.Context, cluster: str, holder: str, live: Sequence[jobs.Job], error: str
) -> None:
    with context.store.writing() as work:
        for job in live:
            if job.misses:
                # Absence counts only over answers that follow one another (tracking.adopting).
                changes = {"misses": 0, "missing_since": None}
                work.change_job(job.row, changes, version=job.version)
        work.finish_refresh(cluster, holder=holder, failed_at=context.clock(), error=error)
