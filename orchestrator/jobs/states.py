"""The states of a job: Slurm's own, and ours beside them."""

from __future__ import annotations

import enum


class JobState(enum.StrEnum):
    """Slurm's job states by their long names, and ours beside them.

    Source: job_state_codes.html of Slurm 24.11 and slurm_protocol_defs.c; a state that is missing
    here reads UNKNOWN, never terminal.
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
    # Flags: the tools print one of them in place of the base state.
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
    #: A raw state that this table lacks, and nothing else.
    UNKNOWN = "UNKNOWN"
    # Ours.
    #: The intent is stored; sbatch has not answered yet.
    SUBMITTING = "SUBMITTING"
    #: sbatch may or may not have been taken by Slurm; being looked for.
    SUBMIT_UNKNOWN = "SUBMIT_UNKNOWN"
    #: Slurm never got it.
    NOT_SUBMITTED = "NOT_SUBMITTED"
    #: Slurm had it and knows nothing of it any more, and no witness tells its end.
    LOST = "LOST"


#: States after which nothing happens any more, unless a requeue opens a new attempt.
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
#: States in which only we know the job: Slurm has no job ID for it, as far as we know.
UNCONFIRMED = frozenset({JobState.SUBMITTING, JobState.SUBMIT_UNKNOWN, JobState.NOT_SUBMITTED})
