"""Deferred submissions: when they are submitted again, and which share a submit limit. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Mapping, Sequence

from orchestrator import config, jobs
from orchestrator.slurm import sbatch

#: refusals that pass by themselves
FOR_NOW = frozenset({sbatch.OutcomeKind.REJECTED_RETRY, sbatch.OutcomeKind.NOT_SENT_RETRY})
_DEFERRED = "deferred: "
#: as earlier versions stored it
_WAITS = "waits for room: "
_FAILED_ON_HOST = re.compile(
    r"cannot be (?:submitted|sent) from (?P<host>\S+): (?P<reason>.+)", re.DOTALL
)


def after(refusals: int, profile: config.Profile, now: datetime.datetime) -> datetime.datetime:
    """Return the time of the next attempt after so many refusals."""
    doublings = min(max(refusals - 1, 0), 30)
    seconds = min(profile.resend_min_seconds * 2**doublings, profile.resend_max_seconds)
    return now + datetime.timedelta(seconds=seconds)


def refused(
    job: jobs.Job, cause: str, profile: config.Profile, now: datetime.datetime
) -> dict[str, object]:
    """Return the changes of a deferred job that Slurm refused for now."""
    return _one_more_refusal(job, f"{_DEFERRED}{cause}", profile, now)


def failed_on_host(
    job: jobs.Job, host: str, reason: str, profile: config.Profile, now: datetime.datetime
) -> dict[str, object]:
    """Return the changes of a deferred job that this host cannot submit now."""
    return _one_more_refusal(job, f"cannot be submitted from {host}: {reason}", profile, now)


def deferred(reason: str, profile: config.Profile, now: datetime.datetime) -> dict[str, object]:
    """Return the changes of a job that is deferred without a refusal."""
    return {"reason": f"{_DEFERRED}{reason}", "resend_at": after(1, profile, now)}


def _one_more_refusal(
    job: jobs.Job, reason: str, profile: config.Profile, now: datetime.datetime
) -> dict[str, object]:
    refusals = job.refusals + 1
    return {"reason": reason, "refusals": refusals, "resend_at": after(refusals, profile, now)}


def failure_on_host(job: jobs.Job) -> tuple[str, str]:
    """Return the host that last failed to submit the job, and the reason; "" if none did."""
    match = _FAILED_ON_HOST.fullmatch(job.reason or "")
    return (match["host"], match["reason"]) if match else ("", "")


def failed_elsewhere(job: jobs.Job, host: str) -> bool:
    """Return whether the job is deferred because another host could not submit it."""
    return job.is_deferred and failure_on_host(job)[0] not in ("", host)


def is_due(job: jobs.Job, host: str, profile: config.Profile, now: datetime.datetime) -> bool:
    """Return whether this host is to submit the job now.

    A job that another host could not submit is due at once: that host, if it looks more often,
    would otherwise make every attempt.
    """
    if failed_elsewhere(job, host):
        return True
    if job.resend_at is None:
        return False
    from orchestrator.clocks import leaps

    # A later time than any delay was written by a clock that was ahead.
    latest = now + datetime.timedelta(seconds=profile.resend_max_seconds) + leaps.TOLERANCE
    return job.resend_at <= now or job.resend_at > latest


def _cause(job: jobs.Job) -> str:
    return (job.reason or "").removeprefix(_DEFERRED).removeprefix(_WAITS)


def is_limit(job: jobs.Job) -> bool:
    """Return whether the job was refused because of a submit limit."""
    cause = _cause(job)
    return cause.startswith(("QOS", "Assoc", "Max")) and " " not in cause.replace(", ", ",")


def _group(refused_job: jobs.Job, request: jobs.Job | jobs.JobSpec) -> Hashable:
    """Return what requests have in common that are refused for the same cause.

    A limit belongs to a partition, an account or a QOS; a drained partition to that partition;
    everything else (a full queue, a full disk) to the cluster.
    """
    cause = _cause(refused_job)
    if cause.endswith("(inactive or drain)"):
        return cause, request.partition
    if is_limit(refused_job):
        return cause, request.partition, request.account, request.qos
    return cause


def groups(deferred_jobs: Sequence[jobs.Job]) -> list[list[jobs.Job]]:
    """Return the deferred jobs by cause, oldest first."""
    by_group: dict[Hashable, list[jobs.Job]] = {}
    for job in sorted(deferred_jobs, key=lambda job: job.row):
        by_group.setdefault(_group(job, job), []).append(job)
    return list(by_group.values())


def behind(
    refused_job: jobs.Job, group: Sequence[jobs.Job], tasks: Mapping[str, int]
) -> list[jobs.Job]:
    """Return the jobs of the group that Slurm would refuse too; tasks: their number by token."""
    limit = tasks[refused_job.token]
    return [job for job in group if keeps_out(refused_job, limit, job, tasks[job.token])]


def keeps_out(
    refused_job: jobs.Job, tasks: int, request: jobs.Job | jobs.JobSpec, request_tasks: int
) -> bool:
    """Return whether Slurm would refuse another submission too.

    A limit counts the tasks of an array. A smaller submission may fit, and would otherwise stay
    behind an array that is larger than the limit. tasks, request_tasks: number of tasks of both.
    """
    is_same = _group(refused_job, refused_job) == _group(refused_job, request)
    return is_same and (not is_limit(refused_job) or request_tasks >= tasks)
