"""What an exit code means beside the state (job_exit_code.html, Slurm 24.11)."""

from __future__ import annotations

import signal

from orchestrator import jobs

#: Slurm's own signal number for "the job could not be set up on the node": no log, no folder.
LAUNCH_FAILED_SIGNAL = 53
#: Ends that Slurm itself brought about: exit code and signal then tell of its own doing.
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
#: The script's own exit codes (docs/design.md, "Scripts").
_SCRIPT_CODES = {
    73: "its run folder is not seen from the compute node",
    75: "another job with its token runs or ran: nothing was run",
    78: "its environment could not be set up: see the log",
}
#: Signals that end programs: abort, kill (also for want of memory), a bad address, terminate.
_DEADLY = frozenset({signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM})
#: What a shell says of the program it should run.
_SHELL_CODES = {126: "the program could not be executed", 127: "the program was not found"}


def explain_exit(job: jobs.Job) -> str:
    """Return what the exit code means beside the state; "" when there is nothing to say.

    Signal 53 is Slurm's own word for a launch that failed (seen on 22.05 and 24.11).
    """
    code, exit_signal = job.exit_code, job.exit_signal
    if exit_signal == LAUNCH_FAILED_SIGNAL:
        return "its log or its working folder could not be opened on the node, so there is no log"
    if job.state in _ENDED_BY_SLURM or code is None:
        return ""
    if exit_signal:
        return f"the script was ended by {_signal_name(exit_signal)}"
    if code in _SCRIPT_CODES and job.tracked_name is None:
        return _SCRIPT_CODES[code]
    if code in _SHELL_CODES:
        return _SHELL_CODES[code]
    if 128 < code < 128 + signal.NSIG:
        return f"128 and {code - 128}: the program was ended by {_signal_name(code - 128)}"
    if job.tracked_name is not None and code in _DEADLY:
        # Our own scripts leave an exit record, which tells the code exactly.
        return (
            f"or {code + 128}, which sacct writes as {code} up to Slurm 25.05: "
            f"then the program was ended by {_signal_name(code)}"
        )
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
