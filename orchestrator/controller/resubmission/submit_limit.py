"""What waits for room: when it is sent again, and which others wait for the same. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Mapping, Sequence

from orchestrator import config, jobs
from orchestrator.clocks import leaps
from orchestrator.slurm import sbatch

#: Refusals that pass by themselves; sbatch's text says so for certain.
FOR_NOW = frozenset({sbatch.OutcomeKind.REJECTED_RETRY, sbatch.OutcomeKind.NOT_SENT_RETRY})
_WAITS = "waits for room: "
_NOT_FROM = re.compile(r"cannot be sent from (?P<host>\S+): (?P<why>.+)", re.DOTALL)


def after(refusals: int, profile: config.Profile, now: datetime.datetime) -> datetime.datetime:
    """Return when a submission that was refused so often is sent again."""
    doublings = min(max(refusals - 1, 0), 30)
    seconds = min(profile.resend_min_seconds * 2**doublings, profile.resend_max_seconds)
    return now + datetime.timedelta(seconds=seconds)


def refused(
    job: jobs.Job, cause: str, profile: config.Profile, now: datetime.datetime
) -> dict[str, object]:
    """Return what changes of a job that was refused for now and waits."""
    refusals = job.refusals + 1
    return {
        "reason": f"{_WAITS}{cause}",
        "refusals": refusals,
        "resend_at": after(refusals, profile, now),
    }


def not_from(
    job: jobs.Job, host: str, why: str, profile: config.Profile, now: datetime.datetime
) -> dict[str, object]:
    """Return what changes of a waiting job that this host cannot send now."""
    refusals = job.refusals + 1
    return {
        "reason": f"cannot be sent from {host}: {why}",
        "refusals": refusals,
        "resend_at": after(refusals, profile, now),
    }


def before_its_turn(why: str, profile: config.Profile, now: datetime.datetime) -> dict[str, object]:
    """Return what changes of a job that waits for another one: it is no refusal, and no host's."""
    return {"reason": f"waits: {why}", "resend_at": after(1, profile, now)}


def why_not_from(job: jobs.Job) -> str:
    """Return why the host that tried last could not send the job; "" where that was no reason."""
    found = _NOT_FROM.fullmatch(job.reason or "")
    return found["why"] if found else ""


def failed_elsewhere(job: jobs.Job, host: str) -> bool:
    """Return whether it waits because another host could not send it: this one may."""
    found = _NOT_FROM.fullmatch(job.reason or "")
    return job.is_deferred and found is not None and found["host"] != host


def is_due(job: jobs.Job, host: str, profile: config.Profile, now: datetime.datetime) -> bool:
    """Return whether this host is to try now.

    One that another host could not send is not left until its time: that host, if it looks more
    often, would take each of them.
    """
    if failed_elsewhere(job, host):
        return True
    if job.resend_at is None:
        return False
    # What is further ahead than any wait was written by a clock that was early.
    latest = now + datetime.timedelta(seconds=profile.resend_max_seconds) + leaps.TOLERANCE
    return job.resend_at <= now or job.resend_at > latest


def cause_of(job: jobs.Job) -> Hashable:
    """Return what a waiting job waits for: the next is not tried before the first gets in.

    A limit is one of a partition, an account or a QOS; a drained partition is one partition's;
    the rest (a full queue, a full disk) is the cluster's.
    """
    reason = job.reason or ""
    if reason.endswith("(inactive or drain)"):
        return reason, job.partition
    if is_limit(job):
        return reason, job.partition, job.account, job.qos
    return reason


def behind(
    refused: jobs.Job, others: Sequence[jobs.Job], tasks: Mapping[str, int]
) -> list[jobs.Job]:
    """Return those of the same cause for which there is no room either, now that one was refused.

    A limit counts the tasks of an array: what is smaller may still fit, and would wait for ever
    behind an array that is larger than the limit. `tasks` is by token.
    """
    if not is_limit(refused):
        return list(others)
    return [job for job in others if tasks[job.token] >= tasks[refused.token]]


def keeps_out(refused: jobs.Job, tasks: int, spec: jobs.JobSpec, spec_tasks: int) -> bool:
    """Return whether there is no room for a new submission either, now that one was refused.

    `tasks` is how many jobs the refused one is, `spec_tasks` how many the new one.
    """
    reason = refused.reason or ""
    if reason.endswith("(inactive or drain)"):
        return spec.partition == refused.partition
    if not is_limit(refused):
        return True
    place = (refused.partition, refused.account, refused.qos)
    return (spec.partition, spec.account, spec.qos) == place and spec_tasks >= tasks


def is_limit(job: jobs.Job) -> bool:
    """Return whether it waits for a limit on jobs in the queue."""
    cause = (job.reason or "").removeprefix(_WAITS)
    return cause.startswith(("QOS", "Assoc", "Max")) and " " not in cause.replace(", ", ",")


def by_cause(waiting: Sequence[jobs.Job]) -> list[list[jobs.Job]]:
    """Return the waiting jobs by what they wait for, the oldest first."""
    groups: dict[Hashable, list[jobs.Job]] = {}
    for job in sorted(waiting, key=lambda job: job.row):
        groups.setdefault(cause_of(job), []).append(job)
    return list(groups.values())
