"""Job states: Slurm's, and four of ours."""

from __future__ import annotations

import enum


class JobState(enum.StrEnum):
    """Slurm's job states by their long names, and ours.

    Source: job_state_codes.html of Slurm 24.11 and slurm_protocol_defs.c.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    # Flags: squeue and sacct print one of them instead of the base state.
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    STAGE_OUT = "STAGE_OUT"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STOPPED = "STOPPED"
    REVOKED = "REVOKED"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    SIGNALING = "SIGNALING"
    #: a state that is not in this table; never terminal
    UNKNOWN = "UNKNOWN"
    # Ours.
    #: the intent is stored; sbatch has not answered yet
    SUBMITTING = "SUBMITTING"
    #: Slurm may or may not have the job; refreshes look for it
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    #: Slurm never had it
    NOT_SUBMITTED = "NOT_SUBMITTED"
    #: Slurm had it and has forgotten it, and no evidence shows how it ended
    LOST = "LOST"


#: A job in one of these changes only by a requeue.
TERMINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
        JobState.NOT_SUBMITTED,
        JobState.LOST,
    }
)
#: There is no job ID in Slurm, as far as we know.
UNCONFIRMED = frozenset({JobState.SUBMITTING, JobState.SUBMIT_UNKNOWN, JobState.NOT_SUBMITTED})
