"""How a job ended as Slurm, the exit record and the history tell it, without its log."""

from __future__ import annotations

import signal

from orchestrator import jobs
from orchestrator.diagnosis import exits
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Evidence, Facts, Finding, Source
from orchestrator.jobs import JobState

_BY_STATE = {
    JobState.TIMEOUT: Cause.TIME_LIMIT,
    JobState.NODE_FAIL: Cause.NODE_FAIL,
    JobState.BOOT_FAIL: Cause.NODE_FAIL,
    JobState.PREEMPTED: Cause.PREEMPTED,
    JobState.CANCELLED: Cause.CANCELLED,
    JobState.OUT_OF_MEMORY: Cause.OOM_HOST,
    JobState.DEADLINE: Cause.DEADLINE,
    JobState.LOST: Cause.LOST,
    JobState.NOT_SUBMITTED: Cause.NOT_SUBMITTED,
}
_BY_CODE = {
    73: Cause.RUN_FOLDER,
    78: Cause.SETUP_FAILED,
    126: Cause.MISSING_PROGRAM,
    127: Cause.MISSING_PROGRAM,
}
_BY_SIGNAL: dict[int, Cause] = {
    signal.SIGILL: Cause.ILLEGAL_INSTRUCTION,
    signal.SIGABRT: Cause.ABORTED,
    signal.SIGBUS: Cause.SHARED_MEMORY,
    signal.SIGKILL: Cause.KILLED,
    signal.SIGSEGV: Cause.SEGFAULT,
    signal.SIGTERM: Cause.KILLED,
    signal.SIGINT: Cause.KILLED,
}


def of_slurm(facts: Facts) -> Finding | None:
    """Return what the state, the exit code and the history say; none: it has not ended badly."""
    job = facts.job
    if job is None or not job.ended or job.state is JobState.COMPLETED:
        return None
    cause = _BY_STATE.get(job.state)
    if cause is None:
        code, number = job.exit_code or 0, job.exit_signal or 0
        if not number and 128 < code < 128 + signal.NSIG:
            number = code - 128
        if number == exits.LAUNCH_FAILED_SIGNAL:
            cause = Cause.LAUNCH_FAILED
        else:
            cause = _BY_SIGNAL.get(number) or _BY_CODE.get(code) or Cause.NONZERO_EXIT
    return Finding(cause=cause, rule=f"state:{job.state}", evidence=evidence_of(job))


def evidence_of(job: jobs.Job) -> Evidence:
    """Return Slurm's own words for the end."""
    text = job.raw_state or str(job.state)
    if job.exit_code is not None:
        text = f"{text}, exit code {job.exit_code}:{job.exit_signal or 0}"
    return Evidence(text=text, source=Source.SLURM)
