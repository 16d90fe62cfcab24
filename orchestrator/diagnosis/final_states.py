"""The cause that a job's final state, exit code and history show, without its log. Pure."""

from __future__ import annotations

import re

from orchestrator import jobs
from orchestrator.diagnosis import exit_codes
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Evidence, Finding, JobFacts, Source
from orchestrator.jobs import JobState
from orchestrator.text import times
from orchestrator.toml import values

#: Cause, summary and fixes that come before those of the cause.
_Result = tuple[Cause, str, tuple[str, ...]]

#: Messages of sbatch and slurmctld that reject a job; the first match counts, because "account/
#: partition combination" is about the account. Source: slurm_errno.c and messages recorded on
#: 22.05, 24.11 and 26.05 (tests/unit/slurm).
_REJECTIONS = {
    "bad_account": r"Invalid account|Invalid wckey|Access/permission denied",
    "bad_qos": r"(?i:Invalid qos)",
    "bad_partition": (
        r"(?i:Invalid partition)|No partition specified|Requested nodes not in this partition"
        r"|not permitted to use this partition"
    ),
    "unavailable": r"Required partition not available|System submissions disabled",
    "limit_reached": (
        r"Job violates accounting/QOS policy|(?:Assoc|QOS)[A-Za-z]+Limit|MaxJobCount"
        r"|Resource temporarily unavailable|temporarily unable to accept|Rate limit exceeded"
        r"|More processors requested than permitted"
    ),
    "dependency": r"[Dd]ependency (?:problem|chain)|Circular job dependency",
    "bad_resources": (
        r"Requested node configuration|Memory specification|Memory required by task|CPU count"
        r"|[Nn]ode count|Task count|Invalid feature|Invalid node name|reservation"
        r"|generic resource|GRES|Trackable RESource|license specification|time limit is invalid"
        r"|Invalid --|job array specification"
    ),
}


def finding(facts: JobFacts) -> Finding | None:
    """Return what the final state shows; None if the job is still there or has succeeded."""
    job = facts.job
    result = None if job is None or not job.ended else _result(facts, job)
    if job is None or result is None:
        return None
    cause, summary, cures = result
    rule = f"state:{job.state}"
    return Finding(cause=cause, rule=rule, evidence=evidence(job), summary=summary, cures=cures)


def evidence(job: jobs.Job) -> Evidence:
    """Return the state and exit code as Slurm reports them, or the message of sbatch."""
    if job.state is JobState.NOT_SUBMITTED:
        return Evidence(text=job.reason or str(job.state), source=Source.SLURM)
    text = job.raw_state or str(job.state)
    if job.exit_code is not None:
        text = f"{text}, exit code {job.exit_code}:{job.exit_signal or 0}"
    if job.state is JobState.OUT_OF_MEMORY and not text.startswith(str(job.state)):
        # sacct 24.11 reports it for the step only.
        text = f"{text}, one of its steps OUT_OF_MEMORY"
    if job.state is JobState.PREEMPTED and not text.startswith(str(job.state)):
        # Slurm before 24.05 (slurm/squeue.py).
        text = f"{text}, in the grace time of its preemption (PreemptTime)"
    source = Source.OURS if job.scheduler == "local" else Source.SLURM
    return Evidence(text=text, source=source)


def earlier_attempts(facts: JobFacts) -> tuple[str, ...]:
    """Return one line about the end of each attempt before the newest one."""
    newest = 0 if facts.job is None else facts.job.attempt
    return tuple(
        f"attempt {attempt.number}: {attempt.state}{_on(attempt.node_list)}{_after_start(attempt)}"
        for attempt in facts.attempts
        if attempt.number < newest
    )


def rejection_cause(message: str) -> Cause:
    """Return why Slurm rejected a job; NOT_SUBMITTED if the message is unknown."""
    matches = (cause for cause, pattern in _REJECTIONS.items() if re.search(pattern, message))
    return next(matches, "not_submitted")


def _result(facts: JobFacts, job: jobs.Job) -> _Result | None:
    nodes, where, after = job.node_list, _on(job.node_list), _after_start(job)
    match job.state:
        case JobState.TIMEOUT:
            return _time_limit(job)
        case JobState.NODE_FAIL | JobState.BOOT_FAIL:
            event = "could not be booted" if job.state is JobState.BOOT_FAIL else "failed"
            if not nodes:
                return "node_fail", f"a node of the job {event}{after}", ()
            node = f"one of the nodes {nodes}" if "[" in nodes else f"node {nodes}"
            cure = f"exclude it until the site has repaired it: exclude = {nodes!r}"
            return "node_fail", f"{node} {event}{after}", (cure,)
        case JobState.PREEMPTED:
            partition = f" in partition {job.partition}" if job.partition else ""
            qos = f" with QOS {job.qos}" if job.qos else ""
            summary = f"a job of higher priority preempted the job{partition}{qos}{after}"
            return "preempted", summary, ()
        case JobState.CANCELLED:
            return _cancelled(facts, job)
        case JobState.OUT_OF_MEMORY:
            summary = f"the job's processes used more memory than it requested{where}{after}"
            return "oom_host", summary, ()
        case JobState.DEADLINE:
            return "deadline", f"the job reached its deadline{_when(job)}", ()
        case JobState.FAILED:
            return _failed(job)
        case JobState.LOST:
            summary = "Slurm no longer knows the job, and its end is unknown"
            if job.observed_at is not None:
                time = job.observed_at.astimezone().strftime("%Y-%m-%d %H:%M")
                summary += f"; Slurm last reported it at {time}"
            return "lost", summary, ()
        case JobState.NOT_SUBMITTED:
            reason = job.reason or ""
            message = reason.partition("\n")[0] or "the job is not in Slurm"
            return rejection_cause(reason), message, ()
    return None


def _time_limit(job: jobs.Job) -> _Result:
    limit, ran_seconds = job.time_limit_seconds, _ran_seconds(job)
    if limit is None:
        return "time_limit", "the job reached its time limit", ()
    ran = "" if ran_seconds is None else f" after {values.elapsed(ran_seconds)}"
    summary = f"the job was ended{ran} because of its time limit of {values.elapsed(limit)}"
    longer = f'request more time, such as time_limit = "{values.elapsed(2 * limit)}"'
    return "time_limit", summary, (longer,)


def _cancelled(facts: JobFacts, job: jobs.Job) -> _Result:
    requests = [event for event in facts.events if event.kind == "cancel"]
    user, when = facts.cancelled_by, _when(job)
    if requests and user in (None, facts.user):
        at = times.local(requests[-1].at)
        summary = f"you cancelled it with orchestrator cancel at {at}{when}"
        return "cancelled", summary, _continue(job)
    if user is None:
        summary = f"it was cancelled{when}; Slurm does not report by whom"
        return "cancelled", summary, _continue(job)
    if user == facts.user:
        summary = f"you ({user}) or your program cancelled it with scancel{when}"
        return "cancelled", summary, _continue(job)
    if user == "root" and facts.script_started is False and job.started_at:
        # Measured on 24.11: Slurm ends a job with --no-requeue in this way if the prolog fails.
        summary = (
            f"Slurm ended the job{_on(job.node_list)} before its script began, which happens if "
            "the site's prolog fails (or an administrator cancelled it at that moment)"
        )
        drained = "`sinfo -R` shows whether the node is drained; exclude it: exclude"
        return "launch_failed", summary, (drained,)
    summary = f"{user}, an operator or a coordinator of the account, cancelled it{when}"
    if user == "root":
        summary = f"root cancelled it: an administrator, or Slurm itself{when}"
    return "cancelled", summary, ("ask the site's support for the reason first",)


def _continue(job: jobs.Job) -> tuple[str, ...]:
    """Return how a job that was cancelled while it ran continues from its checkpoints."""
    if not job.started_at:
        return ()
    limit = "" if job.scheduler == "local" else " (only for some minutes after its end)"
    return (f"continue from its last checkpoint, if it saves any: orchestrator requeue JOB{limit}",)


def _failed(job: jobs.Job) -> _Result:
    known = exit_codes.meaning(job)
    is_launch_failure = (job.reason or "").startswith("JobLaunchFailure")
    if is_launch_failure and job.exit_signal != exit_codes.LAUNCH_FAILED_SIGNAL:
        return "launch_failed", f"Slurm could not start the job{_on(job.node_list)}", ()
    if known is not None:
        return *known, ()
    return "nonzero_exit", f"the job ended with exit code {job.exit_code or 0}", ()


def _ran_seconds(attempt: jobs.Job | jobs.Attempt) -> float | None:
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return max((attempt.ended_at - attempt.started_at).total_seconds(), 0)


def _after_start(attempt: jobs.Job | jobs.Attempt) -> str:
    seconds = _ran_seconds(attempt)
    return "" if seconds is None else f", {values.elapsed(seconds)} after it started"


def _when(job: jobs.Job) -> str:
    return _after_start(job) if job.started_at else " while it was pending"


def _on(node_list: str | None) -> str:
    return f" on {node_list}" if node_list else ""
