"""Why a job is pending, whether it can ever start, the numbers behind it, and the fixes. Pure."""

from __future__ import annotations

import datetime
import re

from orchestrator import jobs
from orchestrator.diagnosis import causes
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.pending import limits
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.diagnosis.pending.facts import (
    Partition,
    PendingFacts,
    PendingRequest,
    Reservation,
)
from orchestrator.diagnosis.pending.reasons import Prospect
from orchestrator.diagnosis.records import Evidence, Explanation, Source
from orchestrator.jobs import JobState
from orchestrator.text import times
from orchestrator.toml import values

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
    return (
        job.state in pending_reasons.PENDING_STATES
        or job.is_deferred
        or job.state in _UNKNOWN_OUTCOME
    )


def explain(job: jobs.Job, queue: PendingFacts, now: datetime.datetime) -> Explanation:
    """Return why the job is pending and what has to happen before it starts."""
    if job.job_id is None:
        return _not_in_slurm(job)
    request = queue.request
    reason = (request.reason if request is not None else None) or job.reason or "None"
    meaning = pending_reasons.meaning(reason)
    prospect, word = meaning.prospect, re.split(r"[\s,(]", reason, maxsplit=1)[0]
    numbers, limit, start = "", None, None
    if request is not None:
        numbers = _numbers(meaning.numbers, request, queue)
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
        summary += f"; Slurm expects it to start at {times.local(start)}, in {in_time}"
    details = {
        "waiting": prospect.value,
        "reason": reason,
        "can_start": prospect is not Prospect.NEVER,
        "expected_start": None if start is None else start.isoformat(),
        "jobs_before": queue.before,
        "slurm_error": queue.error or None,
    }
    source = Source.OURS if job.scheduler == "local" else Source.SLURM
    return Explanation(
        cause=cause,
        summary=summary,
        evidence=(Evidence(text=f"{job.state}, reason {reason}", source=source),),
        cures=_cures(job, cause, prospect, word, _allowed_seconds(word, queue, limit)),
        details={name: value for name, value in details.items() if value is not None},
    )


def _not_in_slurm(job: jobs.Job) -> Explanation:
    if job.is_deferred:
        assert job.resend_at is not None, "deferred jobs have a time"
        summary = (
            f"{job.reason or 'Slurm rejected it for now'}; the next command that contacts Slurm "
            f"after {times.local(job.resend_at)} submits it again"
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
    if pending_reasons.is_held(job) and meaning.cause != "launch_failed":
        return "held"
    general = "bad_resources" if prospect is Prospect.NEVER else "unavailable"
    return meaning.cause or general


def _numbers(template: str, request: PendingRequest, queue: PendingFacts) -> str:
    """Return the numbers behind a reason; "" if Slurm did not report all of them."""
    ahead = {0: "no jobs are", 1: "1 job is"}.get(queue.before or 0, f"{queue.before} jobs are")
    known: dict[str, object] = {
        **vars(request),
        "begins_at": request.eligible_at or request.expected_start,
        "reservation": request.reservation and request.reservation + _state(queue.reservation),
        "unavailable_nodes": "; ".join(queue.unavailable_nodes),
        "ahead": None if queue.before is None else ahead,
    }
    if queue.partition is not None:
        seconds, most = request.time_limit_seconds, queue.partition.max_time_seconds
        known |= {f"partition_{name}": value for name, value in vars(queue.partition).items()}
        known |= {
            "time_limit": "no time limit" if seconds is None else values.elapsed(seconds),
            "max_time": None if most is None else values.elapsed(most),
            "too_much": _too_much(request, queue.partition),
        }
    shown = {
        name: times.local(value) if isinstance(value, datetime.datetime) else value
        for name, value in known.items()
        if value not in (None, "")
    }
    try:
        return template.format_map(shown)
    except KeyError:
        return ""


def _state(reservation: Reservation | None) -> str:
    if reservation is None:
        return ""
    if reservation.state == "INACTIVE" and reservation.begins_at is not None:
        return f" begins at {times.local(reservation.begins_at)}"
    until = "" if reservation.ends_at is None else f" until {times.local(reservation.ends_at)}"
    return f" is {reservation.state}{until}"


def _too_much(request: PendingRequest, partition: Partition) -> str:
    cpus, name = request.resources.get("cpu", 0), partition.name
    for number, unit, most, limit in (
        (request.nodes or 0, "nodes", partition.max_nodes, "allows {} per job"),
        (request.nodes or 0, "nodes", partition.nodes, "has {}"),
        (cpus, "CPUs", partition.cpus, "has {}"),
    ):
        if most is not None and number > most:
            return f"{number} {unit}, partition {name} {limit.format(most)}"
    return ""


def _allowed_seconds(word: str, queue: PendingFacts, limit: limits.Exceeded | None) -> int | None:
    """Return the longest time limit that the partition or the QOS allows, if it is the reason."""
    if limit is not None and limit.limit.name == "MaxWallPJ":
        return limit.limit.allowed * 60
    partition = queue.partition if word == "PartitionTimeLimit" else None
    return None if partition is None else partition.max_time_seconds


def _cures(
    job: jobs.Job, cause: Cause | None, prospect: Prospect, word: str, allowed_seconds: int | None
) -> tuple[str, ...]:
    again = "`orchestrator cancel JOB`, change the spec, and submit it again"
    if allowed_seconds is not None:
        # This keeps the job's place in the queue.
        allowed = values.elapsed(allowed_seconds)
        return (f"scontrol update JobId={job.job_id} TimeLimit={allowed}", f"or {again}")
    if cause == "held" and "JobHeldAdmin" in (job.reason or ""):
        return ("ask the site's support why an administrator holds it",)
    if cause is None and word in ("Priority", "Resources"):
        return ("jobs with a shorter time limit or fewer nodes fit into gaps and start sooner",)
    if cause is None:
        is_limit = prospect is Prospect.LIMIT
        renewed = "it starts when other jobs have ended, or when a time budget is renewed"
        return (renewed,) if is_limit else ()
    by_cause = {
        "launch_failed": (
            "`orchestrator release JOB` lets it start on other nodes; `sinfo -R` shows which node "
            "is drained: the site's prolog may have failed there",
        ),
        "dependency": (
            "find out why that job ended: orchestrator explain ITS-JOB",
            f"or {again}",
        ),
        **dict.fromkeys(("bad_resources", "limit_reached", "deadline"), (again,)),
    }
    return by_cause.get(cause, causes.known()[cause].cures)
