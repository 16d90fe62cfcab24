"""What the causes mean that Slurm tells: it ended the job, or never ran it.

Sources: Slurm's job_state_codes.html and job_reason_codes.html.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.diagnosis.causes import Acts, Cause, CauseKind, Retry

AGAIN = "orchestrator resubmit JOB"
TELL_SITE = "tell the site's support the node and the time: orchestrator show JOB"

KINDS: Mapping[Cause, CauseKind] = {
    Cause.TIME_LIMIT: CauseKind(
        title="it reached its time limit",
        cures=(
            "ask for more: time_limit; `orchestrator metrics JOB --name step` tells how far "
            "it came",
            "save checkpoints and go on from the last one: orchestrator resubmit JOB",
            "have a warning before the end, so that the program saves: signal_seconds = 120",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.NODE_FAIL: CauseKind(
        title="a node failed under it",
        cures=(AGAIN, TELL_SITE),
        acts=Acts.SITE,
        retry=Retry.YES,
    ),
    Cause.PREEMPTED: CauseKind(
        title="it was preempted by a job of higher priority",
        cures=(
            AGAIN,
            "let Slurm put it back by itself: requeue = true, and save checkpoints",
            "use a partition or QOS that is not preempted",
        ),
        acts=Acts.NOBODY,
        retry=Retry.YES,
    ),
    Cause.CANCELLED: CauseKind(
        title="it was cancelled",
        cures=(AGAIN,),
        acts=Acts.NOBODY,
        retry=Retry.NO,
    ),
    Cause.DEADLINE: CauseKind(
        title="it could not end before its deadline",
        cures=("submit it without or with a later deadline",),
        retry=Retry.CHANGED,
    ),
    Cause.DEPENDENCY: CauseKind(
        title="a job that it depends on ended another way than asked for",
        cures=("see why that one ended: orchestrator explain ITS-JOB", AGAIN),
        retry=Retry.CHANGED,
    ),
    Cause.LAUNCH_FAILED: CauseKind(
        title="Slurm could not start it on the node",
        cures=(
            "see that the folders of output and chdir are there and may be written from the "
            "compute nodes: orchestrator doctor",
            AGAIN,
        ),
        retry=Retry.MAYBE,
    ),
    Cause.BAD_ACCOUNT: CauseKind(
        title="its account is not valid here",
        cures=("sacctmgr show associations user=$USER names yours; set account",),
        retry=Retry.CHANGED,
    ),
    Cause.BAD_PARTITION: CauseKind(
        title="its partition is not there, or not for this job",
        cures=("sinfo names the partitions; set partition",),
        retry=Retry.CHANGED,
    ),
    Cause.BAD_QOS: CauseKind(
        title="its QOS is not valid here",
        cures=("sacctmgr show associations user=$USER format=account,qos; set qos",),
        retry=Retry.CHANGED,
    ),
    Cause.BAD_RESOURCES: CauseKind(
        title="no node has what it asks for",
        cures=(
            "sinfo -o '%P %D %c %m %G' tells what nodes have; change [resources]",
            "see what is asked for: orchestrator show JOB --script",
        ),
        retry=Retry.CHANGED,
    ),
    Cause.LIMIT_REACHED: CauseKind(
        title="a limit of the user, account or QOS was reached",
        cures=("wait until jobs have ended, or ask for less", AGAIN),
        retry=Retry.MAYBE,
    ),
    Cause.HELD: CauseKind(
        title="it is held",
        cures=("orchestrator release JOB",),
        retry=Retry.NO,
    ),
    Cause.UNAVAILABLE: CauseKind(
        title="its partition or nodes are down",
        cures=(
            "sinfo -R tells why; wait until the site has them up again, or use other ones: "
            "partition, nodelist",
        ),
        acts=Acts.SITE,
        retry=Retry.MAYBE,
    ),
    Cause.DUPLICATE: CauseKind(
        title="another job with its token runs or ran, so this one ran nothing",
        cures=("nothing: the other one does the work; orchestrator refresh tells which it is",),
        acts=Acts.NOBODY,
    ),
    Cause.NOT_SUBMITTED: CauseKind(
        title="Slurm never got it",
        cures=(AGAIN,),
        retry=Retry.MAYBE,
    ),
    Cause.LOST: CauseKind(
        title="Slurm knows nothing of it any more, and nothing tells its end",
        cures=("see what it left: orchestrator logs JOB", AGAIN),
        acts=Acts.SITE,
        retry=Retry.MAYBE,
    ),
}
