"""resend: what waits for room is sent again when its time has come, by whoever looks at Slurm."""

from __future__ import annotations

import collections
import datetime
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.refresh import freshness, refresh
from orchestrator.controller.resubmission import submit_limit, submitters
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.controller.submission import dependencies
from orchestrator.tracking import run_folder

#: Of one cause in one round; the rest are due still, and follow with the next refresh.
AT_ONCE = 20


def refresh_and_send(
    context: contexts.Context, *, floor_seconds: float | None = None
) -> freshness.Freshness:
    """Refresh, and if Slurm answers send what waits for room and is due.

    At most one process sends at a time, the oldest first. Where Slurm refuses one, none that
    waits for the same, and is not smaller, is tried before that one's next time. What this host
    cannot send goes on waiting, for another or for a better moment. Refusals are no errors here.
    """
    context = clock_check.checked(context)
    host = socket.gethostname()
    ours = any(submit_limit.failed_elsewhere(job, host) for job in _waiting(context)[0])
    fresh = refresh.refresh(context, floor_seconds=floor_seconds, expecting=ours)
    if fresh.failing_since is not None or fresh.busy or context.clock.doubt:
        return fresh
    now = context.clock.now()
    waiting, tasks = _waiting(context)
    for group in submit_limit.by_cause(waiting):
        # Where one has ended there is room for another, whatever the time of the next try.
        made_room = fresh.ended > 0 and submit_limit.is_limit(group[0])
        if made_room or any(submit_limit.is_due(job, host, context.profile, now) for job in group):
            if not _send(context, group, tasks):
                break
    if fresh.asked:
        from orchestrator.controller.diagnosis import alerts

        alerts.check_running(context)
    return fresh


def look(context: contexts.Context, *, floor_seconds: float | None = None) -> freshness.Freshness:
    """Refresh and send for who wants to read: what cannot be stored is said, and no error.

    The database may be on a disk that is full or read-only for the moment.
    """
    try:
        return refresh_and_send(context, floor_seconds=floor_seconds)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"Not refreshed: {exc}")
        return freshness.Freshness()


def _waiting(context: contexts.Context) -> tuple[list[jobs.Job], Mapping[str, int]]:
    """Return what waits here, a job of each submission, and how many each has, by token."""
    facts = clusters.known_facts(context)
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(waiting=True, limit=None))
    here = None if facts is None else facts.cluster
    waiting = [job for job in found if job.is_deferred and job.cluster == here]
    # Newest first: of a submission its first job stands for all.
    first = {job.token: job for job in waiting}
    return list(first.values()), collections.Counter(job.token for job in waiting)


def _send(context: contexts.Context, group: Sequence[jobs.Job], tasks: Mapping[str, int]) -> bool:
    """Send the jobs of one cause as far as there is room; false when this is no time to send."""
    # submitit takes a fifth of a second to import, and few refreshes have something to send.
    from orchestrator.controller.resubmission import resubmit
    from orchestrator.controller.submission import submit

    rest = list(group)
    refused: jobs.Job | None = None
    for _ in range(AT_ONCE):
        if not rest:
            break
        context.guard.check()
        job = rest.pop(0)
        now = context.clock.now()

        def nobody_sends(work: unit_of_work.UnitOfWork, now: datetime.datetime = now) -> bool:
            sending = jobs.JobQuery(waiting=True, states=("SUBMITTING",), limit=None)
            return not any(submitters.is_submitting(one, now) for one in work.jobs.find(sending))

        try:
            _check_dependency(context, job, resubmit.without_dependency(job))
        except errors.ConflictError as exc:
            _give_up(context, job, str(exc))
            continue
        except errors.SlurmError:
            return False
        try:
            sent = resubmit.send_again(
                context, job, queue=True, may=nobody_sends, source="controller"
            )
        except (resubmit.BusyError, submit.OvertakenError):
            return False
        except resubmit.NotFromHereError as exc:
            _put_off(context, job, str(exc))
            continue
        except resubmit.BeforeItsTurnError as exc:
            _wait_on(context, job, str(exc))
            continue
        except errors.ConflictError as exc:
            _give_up(context, job, str(exc))
            continue
        except errors.SlurmError as exc:
            after = _stored(context, job)
            told = "cannot be sent from here" if after.is_deferred else "was sent again"
            context.reporter.warn(f"@{job.row} {told}: {exc}")
            # Refused for good is this job's affair alone; an answer that got lost is Slurm's.
            if after.settled:
                continue
            return False
        if sent.is_deferred:
            no_room = submit_limit.behind(sent, rest, tasks)
            rest = [other for other in rest if other not in no_room]
            # Together they are tried next when the first of them is.
            others = no_room if refused is None else [sent, *no_room]
            refused = refused or sent
            _postpone(context, others, refused)
            continue
        job_id = sent.array_job_id or sent.job_id
        context.reporter.info(f"Submitted batch job {job_id} (@{sent.row}, {sent.name})")
    return True


def _check_dependency(context: contexts.Context, job: jobs.Job, cure: str) -> None:
    # What it depends on may have ended, and been forgotten, while it waited.
    with context.store.reading() as work:
        stored = work.jobs.submission_of(job.row)
    assert stored is not None, "each job belongs to one (foreign key)"
    dependencies.check(context, specs.from_json(stored.spec).dependency, cure=cure)


def _stored(context: contexts.Context, job: jobs.Job) -> jobs.Job:
    with context.store.reading() as work:
        found = work.jobs.get(job.row)
    assert found is not None, "rows are never deleted"
    return found


def _put_off(context: contexts.Context, job: jobs.Job, why: str) -> None:
    """Store that this host cannot send the job now; history and stderr are told once."""
    now, host = context.clock.now(), socket.gethostname()
    is_news = submit_limit.why_not_from(job) != why
    with context.store.writing() as work:
        # Of an array one task stands for all.
        wanted = [one for one in work.jobs.of_submissions([job.token]) if one.is_deferred]
        changed = work.jobs.change_many(
            [
                (one.row, submit_limit.not_from(one, host, why, context.profile, now), one.version)
                for one in wanted
            ]
        )
        detail = f"cannot be sent from {host}: {why}"
        event = jobs.JobEvent(at=now, kind="submit", source="controller", detail=detail)
        work.events.add_many((row, event) for row in sorted(changed) if is_news)
    if is_news:
        context.reporter.warn(f"@{job.row} cannot be sent from here: {why}")


def _wait_on(context: contexts.Context, job: jobs.Job, why: str) -> None:
    """Store what the job waits for still, on all hosts; the history is told once."""
    now = context.clock.now()
    changes = submit_limit.before_its_turn(why, context.profile, now)
    is_news = job.reason != changes["reason"]
    with context.store.writing() as work:
        # Of an array one task stands for all.
        wanted = [one for one in work.jobs.of_submissions([job.token]) if one.is_deferred]
        changed = work.jobs.change_many([(one.row, changes, one.version) for one in wanted])
        detail = str(changes["reason"])
        event = jobs.JobEvent(at=now, kind="submit", source="controller", detail=detail)
        work.events.add_many((row, event) for row in sorted(changed) if is_news)


def _postpone(context: contexts.Context, others: Sequence[jobs.Job], refused: jobs.Job) -> None:
    """Let the others of a cause wait for the one that was just refused."""
    if not others:
        return
    with context.store.writing() as work:
        # Of an array one task stands for all.
        later = work.jobs.of_submissions([job.token for job in others])
        changes = {"resend_at": refused.resend_at}
        work.jobs.change_many([(job.row, changes, None) for job in later if job.is_deferred])


def _give_up(context: contexts.Context, job: jobs.Job, why: str) -> None:
    """Store that the job can never be sent by itself, from whatever host."""
    now = context.clock.now()
    with context.store.writing() as work:
        changes = {"resend_at": None, "reason": why}
        # Of an array one task stands for all.
        wanted = [one for one in work.jobs.of_submissions([job.token]) if one.is_deferred]
        event = jobs.JobEvent(at=now, kind="submit", source="controller", detail=why)
        changed = work.jobs.change_many([(one.row, changes, one.version) for one in wanted])
        work.events.add_many((row, event) for row in sorted(changed))
    run_folder.RunFolder(Path(job.run_dir)).drop_environment()
    context.reporter.warn(f"@{job.row} is not sent again: {why}")
