"""Words and bounds that several tables share."""

from db import columns

#: Of jobs.JobState, which this package does not know; a test compares them.
JOB_STATES = (
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"),
    *("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "COMPLETING"),
    *("CONFIGURING", "STAGE_OUT", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING", "UNKNOWN"),
    *("SUBMITTING", "SUBMIT_UNKNOWN", "NOT_SUBMITTED", "LOST"),
)
STATE = columns.Word(*JOB_STATES, kind="a state of a job")
SCHEDULER = columns.Word("slurm", "local")
#: Slurm counts time limits in minutes of 32 bits.
MOST_SECONDS = 60 * 2**32
