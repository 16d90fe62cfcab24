"""wait: look again and again, sharing one squeue an interval with all other waiters."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence

from orchestrator import errors, jobs, patterns
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import ingest, job_patterns
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import freshness, refresh
from orchestrator.controller.resubmission import resend
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.diagnosis import pending_reasons
from orchestrator.jobs import naming
from orchestrator.slurm import process
from orchestrator.slurm.client import Client

#: A job that ended waits this long for the details of its accounting row.
DETAILS_SECONDS = 30.0
#: Slurm's commands may go on for so long when the time is up.
GRACE_SECONDS = 1.0


def wait(
    context: contexts.Context,
    rows: Sequence[int],
    *,
    timeout_seconds: float | None = None,
    changed: Callable[[Sequence[jobs.Job]], None] = lambda several: None,
) -> list[jobs.Job]:
    """Return the jobs once all have ended, or as they are when the time is up.

    Of a job under [retry] that is the last of its chain: what goes on with one that failed is
    waited for in its place. Where no controller acts, this process does what the rules say.

    `changed` is told, look by look, which jobs have a new state. Their logs are read on the way,
    so that the metrics are there when this returns in time.

    When the time is up Slurm's commands are given up, a second later, and logs are left to the next
    command.
    """
    deadline = context.deadline
    if timeout_seconds is not None:
        deadline = deadline.within(timeout_seconds)
    if deadline.is_finite:
        context = dataclasses.replace(
            context, deadline=deadline, slurm=_bounded(context.slurm, deadline)
        )
    reading: deadlines.Deadline | None = None
    seen: dict[int, jobs.JobState] = {}
    ended: dict[int, datetime.datetime] = {}
    known = job_patterns.configured(context.configuration)
    read: set[int] = set()
    _refuse_strangers(context, rows)

    while True:
        try:
            fresh = resend.look(context)
            found = _jobs(context, rows)
            if any(job.ended and job.state is not jobs.JobState.COMPLETED for job in found):
                _recover(context, found)
                # In one look: between two, a job could be given up for the one that goes on.
                last = chains.newest(context, rows)
                found = list({last[row].row: last[row] for row in rows if row in last}.values())
                rows = [job.row for job in found]
        except deadlines.TimeUpError:
            return _jobs(context, rows)
        now = context.clock.now()
        news = [job for job in found if seen.get(job.row) is not job.state]
        seen.update({job.row: job.state for job in news})
        changed(news)
        for note in _stuck(found):
            context.reporter.warn(note)
        for job in found:
            if job.ended:
                ended.setdefault(job.row, now)
            else:
                ended.pop(job.row, None)
        done = _read(context, [job for job in found if job.row not in read], known)
        late = done.unread
        read.update(job.row for job in found if job.settled and job.ended and job.row not in late)
        if all(_done(job, ended, now) for job in found):
            # The log of a job that has ended may take longer than anybody wants to wait.
            reading = reading or deadline.within(ingest.READ_SECONDS)
            if not done.unread or reading.is_over:
                if told_of := done.report(ingest.READ_SECONDS, "the next command reads on"):
                    context.reporter.warn(told_of)
                return found
            continue
        if deadline.is_over:
            return found
        pause_seconds = _pause_seconds(context, fresh, now)
        if any(job.scheduler == "local" and not job.settled for job in found):
            pause_seconds = min(pause_seconds, refresh.LOCAL_FLOOR_SECONDS)
        context.clock.sleep(min(pause_seconds, deadline.left_seconds))
        if deadline.is_over:
            # Another process may have asked meanwhile.
            return _jobs(context, rows)


def _read(
    context: contexts.Context,
    found: Sequence[jobs.Job],
    known: Sequence[patterns.Pattern],
) -> ingest.Ingested:
    """Read the jobs' logs as far as a look may take."""
    deadline = context.deadline.within(ingest.LOOK_SECONDS)
    try:
        return ingest.ingest(context, found, known, deadline=deadline)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"Metrics are not stored: {exc}")
        return ingest.Ingested()


def _bounded(client: Client, deadline: deadlines.Deadline) -> Client:
    """Return the client whose commands are given up soon after the deadline, with TimeUpError."""
    run = client.run
    # Who waits for 0 s asks once how the jobs are.
    end = dataclasses.replace(deadline, at=deadline.at + GRACE_SECONDS)

    def left(timeout_seconds: float) -> float:
        if end.is_over:
            raise deadlines.TimeUpError
        return min(timeout_seconds, end.left_seconds)

    def checked(answer: process.Result) -> process.Result:
        # Slurm is not to blame: nothing is stored of it.
        if answer.timed_out and end.is_over:
            raise deadlines.TimeUpError
        return answer

    def bounded_run(
        argv: Sequence[str], timeout_seconds: float, environ: Mapping[str, str], /
    ) -> process.Result:
        return checked(run(argv, left(timeout_seconds), environ))

    return dataclasses.replace(client, run=bounded_run)


def _recover(context: contexts.Context, found: Sequence[jobs.Job]) -> None:
    """Do what follows failures, where it is nobody else's affair."""
    if not any(job.recovers for job in found):
        return
    context = clock_check.checked(context)
    if context.clock.doubt:
        return
    with context.store.reading() as work:
        lease = work.leases.read(context.clock.now())
    if lease is not None and lease.holder is not None and not lease.lapsed:
        return
    from orchestrator.controller.recovery import retry

    try:
        for told in retry.step(context):
            context.reporter.warn(told)
    except errors.OrchestratorError as exc:
        context.reporter.warn(f"What follows failures is not decided: {exc}")


def _jobs(context: contexts.Context, rows: Sequence[int]) -> list[jobs.Job]:
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(rows=rows, limit=None)) if rows else []
    by_row = {job.row: job for job in found}
    return [by_row[row] for row in rows if row in by_row]


def _stuck(found: Sequence[jobs.Job]) -> list[str]:
    """Return what to tell of those that could be waited for in vain; somebody may yet help them."""
    alike: dict[str, list[jobs.Job]] = {}
    for job in found:
        if why := pending_reasons.explain_stuck(job):
            alike.setdefault(why, []).append(job)
    return [f"{naming.names_of(several)} {why}" for why, several in alike.items()]


def _done(job: jobs.Job, ended: dict[int, datetime.datetime], now: datetime.datetime) -> bool:
    if not job.is_over:
        return False
    return job.settled or (now - ended[job.row]).total_seconds() >= DETAILS_SECONDS


def _pause_seconds(
    context: contexts.Context, fresh: freshness.Freshness, now: datetime.datetime
) -> float:
    """Return how long until the next answer of Slurm is due, so that nobody asks in between."""
    floor = float(context.profile.poll_floor_seconds)
    asked_at = max((at for at in (fresh.good_at, fresh.tried_at) if at), default=None)
    if asked_at is None:
        return floor
    due = floor - (now - asked_at).total_seconds()
    return due if 0 < due <= floor else floor


def _refuse_strangers(context: contexts.Context, rows: Sequence[int]) -> None:
    """Raise ConflictError for jobs of a cluster that cannot be asked from this host."""
    for there, some in contexts.by_scheduler(context, _jobs(context, rows)):
        here = clusters.facts(there).cluster
        away = [job for job in some if job.cluster != here and not job.settled]
        if away and there.is_local:
            raise errors.ConflictError(clusters.other_machine(away[0]))
        if away:
            told = ", ".join(f"{job.job_id or f'@{job.row}'} of {job.cluster}" for job in away)
            raise errors.ConflictError(
                f"this host belongs to cluster {here}; "
                f"wait for {told} on a login host of that cluster"
            )
