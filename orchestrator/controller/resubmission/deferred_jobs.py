"""Submit deferred jobs again when they are due. Every process that refreshes does it."""

from __future__ import annotations

import collections
import dataclasses
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import errors, jobs
from orchestrator.controller.refresh import freshness, refresh
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.files import run_folder
from orchestrator.slurm import deferral

#: of one group in one pass; the rest stay due
MAX_PER_GROUP = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What refresh_and_send has read before it queries Slurm."""

    context: contexts.Context
    refreshes: tuple[refresh.Plan, refresh.Plan]
    has_deferred: bool
    checks_alerts: bool


def make_plan(context: contexts.Context, *, floor_seconds: float | None = None) -> Plan:
    """Read what refresh_and_send needs, in one transaction."""
    # Few commands read logs for alerts.
    from orchestrator.controller.diagnosis import alerts

    with context.store.reading() as work:
        context = clock_check.checked(context)
        host = socket.gethostname()
        deferred, _ = _deferred(context)
        expecting = any(deferral.failed_elsewhere(job, host) for job in deferred)
        return Plan(
            context=context,
            refreshes=refresh.plans(context, floor_seconds=floor_seconds, expecting=expecting),
            has_deferred=bool(deferred) and not context.is_read_only,
            checks_alerts=alerts.is_due(work, context.clock.now()),
        )


def refresh_and_send(
    context: contexts.Context, *, floor_seconds: float | None = None, plan: Plan | None = None
) -> freshness.Freshness:
    """Refresh, and if Slurm answers, submit the deferred jobs that are due, oldest first.

    Only one process submits at a time. If Slurm refuses a job, the jobs that it would refuse too
    are not tried before that job's next attempt. A job that this host cannot submit stays deferred.
    """
    plan = plan or make_plan(context, floor_seconds=floor_seconds)
    context = plan.context
    fresh = refresh.run(*plan.refreshes)
    if fresh.failing_since is not None or fresh.busy or context.clock.doubt:
        return fresh
    host, now = socket.gethostname(), context.clock.now()
    deferred, tasks = _deferred(context) if plan.has_deferred else ([], {})
    for group in deferral.groups(deferred):
        # After a job has ended another one fits, whatever the time of the next attempt.
        may_fit = fresh.ended > 0 and deferral.is_limit(group[0])
        if may_fit or any(deferral.is_due(job, host, context.profile, now) for job in group):
            if not _send_group(context, group, tasks):
                break
    if fresh.asked and plan.checks_alerts:
        from orchestrator.controller.diagnosis import alerts

        alerts.check_running(context)
    return fresh


def refresh_or_warn(context: contexts.Context, plan: Plan | None = None) -> freshness.Freshness:
    """Do the same for a command that shows jobs; warn if the database cannot be written."""
    try:
        return refresh_and_send(context, plan=plan)
    except errors.DatabaseError as error:
        context.reporter.warn(f"Not refreshed: {error}")
        return freshness.Freshness()


def _deferred(context: contexts.Context) -> tuple[list[jobs.Job], Mapping[str, int]]:
    """Return the first job of each deferred submission, and the number of tasks by token."""
    facts = clusters.known_facts(context)
    with context.store.reading() as work:
        rows = work.jobs.find(jobs.JobQuery(deferred=True, limit=None))
    cluster = None if facts is None else facts.cluster
    deferred = [job for job in rows if job.is_deferred and job.cluster == cluster]
    # Newest first, so the first job of a submission is kept.
    first = {job.token: job for job in deferred}
    return list(first.values()), collections.Counter(job.token for job in deferred)


def _send_group(
    context: contexts.Context, group: Sequence[jobs.Job], tasks: Mapping[str, int]
) -> bool:
    """Submit the jobs of one group until Slurm refuses; False: submit nothing more in this pass."""
    # Few refreshes submit anything, and these load many modules.
    from orchestrator.controller.actions import confirmed
    from orchestrator.controller.resubmission import resubmit
    from orchestrator.controller.submission import submit

    remaining = list(group)
    first_refused: jobs.Job | None = None
    for _ in group[:MAX_PER_GROUP]:
        if not remaining:
            break
        context.guard.check()
        job = remaining.pop(0)
        try:
            sent = resubmit.send_again(context, job, queue=True, is_automatic=True)
        except (resubmit.BusyError, submit.OvertakenError):
            return False
        except resubmit.WrongHostError as error:
            _defer_on_host(context, job, str(error))
            continue
        except errors.SpecError as error:
            # On another host a version that can read it may be installed.
            _defer_on_host(context, job, f"another version wrote its spec: {error.problems[0]}")
            continue
        except resubmit.NotReadyError as error:
            changes = deferral.deferred(str(error), context.profile, context.clock.now())
            is_new = job.reason != changes["reason"]
            _change_tasks(context, [job], changes, str(changes["reason"]) if is_new else None)
            continue
        except errors.ConflictError as error:
            _give_up(context, job, str(error))
            continue
        except errors.SlurmError as error:
            (current,) = confirmed.stored(context, [job])
            result = "cannot be submitted from here" if current.is_deferred else "was submitted"
            context.reporter.warn(f"@{job.row} {result}: {error}")
            # A stored refusal concerns this job alone; otherwise Slurm does not answer.
            if current.settled and current.version != job.version:
                continue
            return False
        if not sent.is_deferred:
            job_id = sent.array_job_id or sent.job_id
            context.reporter.info(f"Submitted batch job {job_id} (@{sent.row}, {sent.name})")
            continue
        behind = deferral.behind(sent, remaining, tasks)
        rows = {job.row for job in behind}
        remaining = [job for job in remaining if job.row not in rows]
        # All of the group are tried again when the first refused job is.
        first_refused = first_refused or sent
        _change_tasks(context, [sent, *behind], {"resend_at": first_refused.resend_at}, None)
    return True


def _defer_on_host(context: contexts.Context, job: jobs.Job, reason: str) -> None:
    """Store that this host cannot submit the job; the event and the message come once."""
    host, now = socket.gethostname(), context.clock.now()
    changes = deferral.failed_on_host(job, host, reason, context.profile, now)
    is_new = deferral.failure_on_host(job)[1] != reason
    _change_tasks(context, [job], changes, str(changes["reason"]) if is_new else None)
    if is_new:
        context.reporter.warn(f"@{job.row} cannot be submitted from here: {reason}")


def _give_up(context: contexts.Context, job: jobs.Job, reason: str) -> None:
    """Store that the job can never be submitted as it is, from any host."""
    _change_tasks(context, [job], {"resend_at": None, "reason": reason}, reason)
    run_folder.RunFolder(Path(job.run_dir)).drop_environment()
    context.reporter.warn(f"@{job.row} is not submitted again: {reason}")


def _change_tasks(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    changes: Mapping[str, object],
    detail: str | None,
) -> None:
    """Change all tasks of deferred submissions; add an event with `detail` unless None."""
    tokens = [job.token for job in selected]
    with context.store.writing() as work:
        tasks = [task for task in work.jobs.of_submissions(tokens) if task.is_deferred]
        changed = work.jobs.change_many([(task.row, changes, task.version) for task in tasks])
        if detail is not None:
            event = context.event("submit", detail, source="controller")
            work.events.add_many((row, event) for row in sorted(changed))
