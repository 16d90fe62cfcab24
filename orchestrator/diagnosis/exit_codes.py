"""What exit codes and signals mean (job_exit_code.html, Slurm 24.11). Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from orchestrator import jobs
from orchestrator.diagnosis.causes import Cause
from orchestrator.jobs import JobState

#: The signal number that Slurm reports if it could not set up the job on its node (22.05, 24.11).
LAUNCH_FAILED_SIGNAL = 53
#: Slurm itself ended the job, so that exit code and signal say nothing about the program.
_ENDED_BY_SLURM = frozenset(
    {
        *(JobState.CANCELLED, JobState.TIMEOUT, JobState.PREEMPTED),
        *(JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.DEADLINE),
    }
)
_SHELL_CODES: Mapping[int, tuple[Cause, str]] = {
    126: ("missing_program", "the program could not be executed"),
    127: ("missing_program", "the program was not found"),
}
#: The job script cannot use its run folder, or the folder is missing.
NO_RUN_FOLDER = 73
#: Also the exit codes of our job scripts (docs/design.md, "Batch scripts").
_SCRIPT_CODES: Mapping[int, tuple[Cause, str]] = {
    **_SHELL_CODES,
    NO_RUN_FOLDER: ("run_folder", "the compute node cannot see the run folder"),
    75: (
        "duplicate",
        "another job with the same token is running or has run: nothing was run",
    ),
    78: ("setup_failed", "the environment could not be set up: see the log"),
}
CRASH_CAUSES: Mapping[int, Cause] = {
    signal.SIGILL: "illegal_instruction",
    signal.SIGABRT: "aborted",
    # PyTorch's data loader workers get it if /dev/shm is full.
    signal.SIGBUS: "shared_memory",
    signal.SIGKILL: "killed",
    signal.SIGSEGV: "segfault",
}
#: sacct up to Slurm 25.05 reports 128 + N as N. Only these are likely to be meant.
_LIKELY_SIGNALS = frozenset({signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM})


def meaning(job: jobs.Job) -> tuple[Cause, str] | None:
    """Return what the exit code shows in addition to the state; None if it shows nothing more."""
    code, exit_signal = job.exit_code or 0, job.exit_signal or 0
    if exit_signal == LAUNCH_FAILED_SIGNAL:
        log = f" ({job.stdout_path})" if job.stdout_path else ""
        where = f" on {job.node_list}" if job.node_list else ""
        sentence = f"Slurm could not open the log{log} or the working directory{where}"
        return "launch_failed", f"{sentence}, so there is no log"
    if job.state in _ENDED_BY_SLURM:
        return None
    if exit_signal:
        return _crash(exit_signal, "ended the batch script")
    codes = _SHELL_CODES if job.tracked_name is not None else _SCRIPT_CODES
    if code in codes:
        return codes[code]
    if 128 < code < 128 + signal.NSIG:
        return _crash(code - 128, f"ended the program: {code} = 128 + {code - 128}")
    if job.tracked_name is not None and code in _LIKELY_SIGNALS:
        # Our own scripts write an exit record, which has the exact code.
        name = signal.Signals(code).name
        measured = f"sacct up to Slurm 25.05 reports {code + 128} as {code}"
        return "nonzero_exit", f"{name} may have ended the program: {measured}"
    return None


def of_rank(code: int) -> tuple[Cause, str]:
    """Return what the exit code of a rank shows, and how it ended; negative: a signal ended it."""
    ended = f"ended with exit code {code}"
    number = -code if code < 0 else code - 128
    if code in _SHELL_CODES:
        cause, why = _SHELL_CODES[code]
        return cause, f"{ended}: {why}"
    if 0 < number < signal.NSIG and number in {*signal.Signals}:
        name = signal.Signals(number).name
        how = f"was ended by {name}" if code < 0 else f"{ended} = 128 + {number} ({name})"
        return CRASH_CAUSES.get(number, "killed"), how
    return "nonzero_exit", ended


def _crash(number: int, event: str) -> tuple[Cause, str]:
    if number not in {*signal.Signals}:
        # Programs use such codes as well.
        return "nonzero_exit", f"signal {number} {event}"
    return CRASH_CAUSES.get(number, "killed"), f"{signal.Signals(number).name} {event}"
