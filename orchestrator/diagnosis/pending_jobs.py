"""Why a job is pending, whether it can ever start, the numbers behind it, and the fixes. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping

from orchestrator import jobs
from orchestrator.diagnosis import causes, limits, pending_reasons
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.pending_reasons import Prospect
from orchestrator.diagnosis.queue import Queue, Request
from orchestrator.diagnosis.records import Evidence, Explanation, Source
from orchestrator.jobs import JobState
from orchestrator.toml import values

_PENDING_STATES = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.RESV_DEL_HOLD,
    }
)
#: Jobs whose submission has no known outcome.
_UNKNOWN_OUTCOME = {
    JobState.SUBMITTING: "the job is being submitted: sbatch has not replied yet",
    JobState.SUBMIT_UNKNOWN: (
        "it is unknown whether Slurm accepted the job, because sbatch gave no usable reply; "
        "orchestrator looks for the job by its name"
    ),
}


def is_pending(job: jobs.Job) -> bool:
    """Return whether the job is pending, is being submitted or is deferred."""
    return job.state in _PENDING_STATES or job.is_deferred or job.state in _UNKNOWN_OUTCOME


def explain(job: jobs.Job, queue: Queue, now: datetime.datetime) -> Explanation:
    """Return why the job is pending and what has to happen before it starts."""
    if job.job_id is None:
        return _not_in_slurm(job)
    request = queue.request
    reason = (request.reason if request is not None else None) or job.reason or "None"
    meaning = pending_reasons.meaning(reason)
    prospect = meaning.prospect
    word = pending_reasons.first_word(reason)
    numbers, limit, start = "", None, None
    if request is not None:
        numbers = _NUMBERS[word](request, queue) if word in _NUMBERS else ""
        limit = limits.exceeded(reason, request, queue.limits)
        if limit is not None:
            numbers = limit.sentence
            prospect = Prospect.NEVER if limit.never else prospect
        # Slurm 24.11 reports an expected start for jobs that cannot start, too.
        if prospect is Prospect.WILL_START and (request.expected_start or now) > now:
            start = request.expected_start
    cause = _cause(job, meaning, prospect)
    summary = f"{prospect.label}: {meaning.sentence}" + (f" ({numbers})" if numbers else "")
    if start is not None:
        in_time = values.elapsed((start - now).total_seconds())
        summary += f"; Slurm expects it to start at {_local_time(start)}, in {in_time}"
    details = {
        "waiting": prospect.value,
        "reason": reason,
        "can_start": prospect is not Prospect.NEVER,
        "expected_start": None if start is None else start.isoformat(),
        "jobs_before": queue.before,
        "slurm_error": queue.error or None,
    }
    return Explanation(
        cause=cause,
        summary=summary,
        evidence=(Evidence(text=f"{job.state}, reason {reason}", source=Source.SLURM),),
        cures=_cures(job, cause, prospect, word, _allowed_seconds(word, queue, limit)),
        details={name: value for name, value in details.items() if value is not None},
    )


def _not_in_slurm(job: jobs.Job) -> Explanation:
    if job.is_deferred:
        assert job.resend_at is not None, "deferred jobs have a time"
        summary = (
            f"{job.reason or 'Slurm rejected it for now'}; the next command that contacts Slurm "
            f"after {_local_time(job.resend_at)} submits it again"
        )
        cure = "`orchestrator wait JOB` submits it as soon as the limit allows it"
    else:
        summary = _UNKNOWN_OUTCOME[job.state]
        cure = "do not submit it again: `orchestrator status JOB` shows the outcome once known"
    return Explanation(
        cause=None,
        summary=summary,
        evidence=(Evidence(text=job.reason or str(job.state), source=Source.OURS),),
        cures=(cure,),
        details={"waiting": Prospect.WILL_START.value, "reason": job.reason, "can_start": True},
    )


def _cause(job: jobs.Job, meaning: pending_reasons.Reason, prospect: Prospect) -> Cause | None:
    if prospect in (Prospect.WILL_START, Prospect.LIMIT):
        return None
    if pending_reasons.is_held(job) and meaning.cause is not Cause.LAUNCH_FAILED:
        return Cause.HELD
    general = Cause.BAD_RESOURCES if prospect is Prospect.NEVER else Cause.UNAVAILABLE
    return meaning.cause or general


def _time_limit(request: Request, queue: Queue) -> str:
    partition, seconds = queue.partition, request.time_limit_seconds
    if partition is None or partition.max_time_seconds is None:
        return ""
    requested = "no time limit" if seconds is None else values.elapsed(seconds)
    allowed = values.elapsed(partition.max_time_seconds)
    return f"it requests {requested}, partition {partition.name} allows {allowed}"


def _nodes(request: Request, queue: Queue) -> str:
    partition, nodes = queue.partition, request.nodes
    if partition is None or nodes is None:
        return ""
    at_most, cpus = partition.max_nodes, request.resources.get("cpu", 0)
    if at_most is not None and nodes > at_most:
        return f"it requests {nodes} nodes, partition {partition.name} allows {at_most} per job"
    if partition.nodes is not None and nodes > partition.nodes:
        return f"it requests {nodes} nodes, partition {partition.name} has {partition.nodes}"
    if partition.cpus is not None and cpus > partition.cpus:
        return f"it requests {cpus} CPUs, partition {partition.name} has {partition.cpus}"
    return ""


def _memory(request: Request, queue: Queue) -> str:
    partition, memory_mib = queue.partition, request.memory_mib
    if partition is None or partition.max_memory_mib is None or memory_mib is None:
        return ""
    return (
        f"it requests {memory_mib} MiB per node, partition {partition.name} allows"
        f" {partition.max_memory_mib}"
    )


def _begin_time(request: Request, queue: Queue) -> str:
    time = request.eligible_at or request.expected_start
    return "" if time is None else f"not before {_local_time(time)}"


def _reservation(request: Request, queue: Queue) -> str:
    name, reservation = request.reservation, queue.reservation
    if name is None or reservation is None:
        return "" if name is None else f"reservation {name}"
    if reservation.state == "INACTIVE" and reservation.begins_at is not None:
        return f"reservation {name} begins at {_local_time(reservation.begins_at)}"
    ends_at = reservation.ends_at
    until = "" if ends_at is None else f" until {_local_time(ends_at)}"
    return f"reservation {name} is {reservation.state}{until}"


def _accounts(request: Request, queue: Queue) -> str:
    partition = queue.partition
    if partition is None or not partition.accounts:
        return ""
    accepts = f"partition {partition.name} accepts {partition.accounts}"
    return f"{accepts}, the account of the job is {request.account}"


def _allowed_qos(request: Request, queue: Queue) -> str:
    partition = queue.partition
    if partition is None or not partition.allowed_qos:
        return ""
    accepts = f"partition {partition.name} accepts {partition.allowed_qos}"
    return f"{accepts}, the QOS of the job is {request.qos}"


def _nodes_away(request: Request, queue: Queue) -> str:
    return "; ".join(f"{node.name} is {node.state} ({node.why})" for node in queue.nodes)


def _jobs_ahead(request: Request, queue: Queue) -> str:
    if queue.before is None or queue.partition is None:
        return ""
    count = {0: "no jobs are", 1: "1 job is"}.get(queue.before, f"{queue.before} jobs are")
    return f"{count} ahead of it in partition {queue.partition.name}"


def _partition_state(request: Request, queue: Queue) -> str:
    partition = queue.partition
    return "" if partition is None else f"partition {partition.name} is {partition.state}"


def _dependency(request: Request, queue: Queue) -> str:
    return "" if request.dependency is None else f"dependency {request.dependency}"


def _features(request: Request, queue: Queue) -> str:
    return "" if request.features is None else f"it requests {request.features}"


def _deadline(request: Request, queue: Queue) -> str:
    deadline = request.deadline
    return "" if deadline is None else f"its deadline is {_local_time(deadline)}"


#: The numbers behind a reason; "" if Slurm did not report them.
_NUMBERS: Mapping[str, Callable[[Request, Queue], str]] = {
    "PartitionTimeLimit": _time_limit,
    "PartitionNodeLimit": _nodes,
    "PartitionConfig": _nodes,
    "MaxMemPerLimit": _memory,
    "PartitionDown": _partition_state,
    "PartitionInactive": _partition_state,
    "Dependency": _dependency,
    "DependencyNeverSatisfied": _dependency,
    "BeginTime": _begin_time,
    "Reservation": _reservation,
    "ReservationDeleted": _reservation,
    "AccountNotAllowed": _accounts,
    "QOSNotAllowed": _allowed_qos,
    "ReqNodeNotAvail": _nodes_away,
    "NodeDown": _nodes_away,
    "Priority": _jobs_ahead,
    "Resources": _jobs_ahead,
    "DeadLine": _deadline,
    "BadConstraints": _features,
    "Constraints": _features,
    "Licenses": lambda request, queue: request.licenses or "",
}


def _allowed_seconds(word: str, queue: Queue, limit: limits.Exceeded | None) -> int | None:
    """Return the longest time limit that the partition or the QOS allows, if it is the reason."""
    if limit is not None and limit.limit.name == "MaxWallPJ":
        return limit.limit.allowed * 60
    if word == "PartitionTimeLimit" and queue.partition is not None:
        return queue.partition.max_time_seconds
    return None


def _cures(
    job: jobs.Job, cause: Cause | None, prospect: Prospect, word: str, allowed_seconds: int | None
) -> tuple[str, ...]:
    again = "`orchestrator cancel JOB`, change the spec, and submit it again"
    if allowed_seconds is not None:
        # This keeps the job's place in the queue.
        allowed = values.elapsed(allowed_seconds)
        return (f"scontrol update JobId={job.job_id} TimeLimit={allowed}", f"or {again}")
    if cause is Cause.HELD and re.search(r"\bJobHeldAdmin\b", job.reason or ""):
        return ("ask the site's support why an administrator holds it",)
    if cause is Cause.LAUNCH_FAILED:
        return (
            "`orchestrator release JOB` lets it start on other nodes; `sinfo -R` shows which node "
            "is drained: the site's prolog may have failed there",
        )
    if cause is Cause.DEPENDENCY:
        return ("find out why that job ended: orchestrator explain ITS-JOB", f"or {again}")
    if cause in (Cause.BAD_RESOURCES, Cause.LIMIT_REACHED, Cause.DEADLINE):
        return (again,)
    if cause is not None:
        return causes.info(cause).cures
    if word in ("Priority", "Resources"):
        return ("jobs with a shorter time limit or fewer nodes fit into gaps and start sooner",)
    if prospect is Prospect.LIMIT:
        return ("it starts when other jobs have ended, or when a time budget is renewed",)
    return ()


def _local_time(time: datetime.datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
