"""What exit codes and signals mean (job_exit_code.html, Slurm 24.11). Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from orchestrator import jobs
from orchestrator.diagnosis.causes import Cause

#: The signal number that Slurm reports if it could not set up the job on its node (22.05, 24.11).
LAUNCH_FAILED_SIGNAL = 53
#: Slurm itself ended the job, so that exit code and signal say nothing about the program.
_ENDED_BY_SLURM = frozenset(
    {
        jobs.JobState.CANCELLED,
        jobs.JobState.TIMEOUT,
        jobs.JobState.PREEMPTED,
        jobs.JobState.NODE_FAIL,
        jobs.JobState.BOOT_FAIL,
        jobs.JobState.DEADLINE,
    }
)
_SHELL_CODES: Mapping[int, tuple[Cause, str]] = {
    126: (Cause.MISSING_PROGRAM, "the program could not be executed"),
    127: (Cause.MISSING_PROGRAM, "the program was not found"),
}
#: Exit codes of our job scripts (docs/design.md, "Scripts").
_SCRIPT_CODES: Mapping[int, tuple[Cause, str]] = {
    73: (Cause.RUN_FOLDER, "the compute node cannot see the run folder"),
    75: (
        Cause.DUPLICATE,
        "another job with the same token is running or has run: nothing was run",
    ),
    78: (Cause.SETUP_FAILED, "the environment could not be set up: see the log"),
}
CRASH_CAUSES: Mapping[int, Cause] = {
    signal.SIGILL: Cause.ILLEGAL_INSTRUCTION,
    signal.SIGABRT: Cause.ABORTED,
    # PyTorch's data loader workers get it if /dev/shm is full.
    signal.SIGBUS: Cause.SHARED_MEMORY,
    signal.SIGKILL: Cause.KILLED,
    signal.SIGSEGV: Cause.SEGFAULT,
}
#: sacct up to Slurm 25.05 reports 128 + N as N. Only these are likely to be meant.
_LIKELY_SIGNALS = frozenset({signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM})


def meaning(job: jobs.Job, code: int) -> tuple[Cause, str] | None:
    """Return the cause and a sentence for a fixed exit code of a shell or of our job script."""
    own = {} if job.tracked_name is not None else _SCRIPT_CODES
    return own.get(code) or _SHELL_CODES.get(code)


def explain(job: jobs.Job) -> str:
    """Return what the exit code says in addition to the state; "" if it says nothing more."""
    code, exit_signal = job.exit_code, job.exit_signal
    if exit_signal == LAUNCH_FAILED_SIGNAL:
        return "Slurm could not open the log or the working directory, so there is no log"
    if job.state in _ENDED_BY_SLURM or code is None:
        return ""
    if exit_signal:
        return f"{_signal_name(exit_signal)} ended the batch script"
    if known := meaning(job, code):
        return known[1]
    if 128 < code < 128 + signal.NSIG:
        return f"{code} = 128 + {code - 128}: {_signal_name(code - 128)} ended the program"
    if job.tracked_name is not None and code in _LIKELY_SIGNALS:
        # Our own scripts write an exit record, which has the exact code.
        return (
            f"or {code + 128}, which sacct up to Slurm 25.05 reports as {code}: "
            f"{_signal_name(code)} ended the program"
        )
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
