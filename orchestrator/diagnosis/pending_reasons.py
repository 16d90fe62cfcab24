"""What Slurm's reasons for pending jobs mean (job_reason_codes.html, Slurm 24.11). Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import NamedTuple

from orchestrator import jobs
from orchestrator.diagnosis.causes import Cause
from orchestrator.jobs import JobState


class Prospect(enum.Enum):
    """What has to happen before a pending job starts. The values are in JSON."""

    WILL_START = "will start"
    #: a limit of the user, account or QOS is reached
    LIMIT = "waits for a limit"
    #: somebody has to do something
    ACTION = "needs a person"
    NEVER = "can never start"

    @property
    def label(self) -> str:
        """Return the words for messages."""
        labels = {Prospect.LIMIT: "limit reached", Prospect.ACTION: "needs action"}
        return labels.get(self, self.value)


class Reason(NamedTuple):
    """What one of Slurm's reasons means."""

    prospect: Prospect
    sentence: str
    #: why the job does not start without intervention; None: the general one of the prospect
    cause: Cause | None = None


_WILL_START, _LIMIT, _ACTION, _NEVER = Prospect

#: By a regex for the beginning of the reason: the first match counts.
_REASONS: Mapping[str, Reason] = {
    # "ReqNodeNotAvail, May be reserved for other job", "..., Reserved for maintenance"
    "ReqNodeNotAvail, .*[Rr]eserved for": Reason(
        _WILL_START,
        "its nodes are reserved: it starts afterwards, or before if its time limit is short enough",
    ),
    "launch failed requeued held": Reason(
        _ACTION,
        "it could not be started on its node and is held: orchestrator release JOB",
        "launch_failed",
    ),
    "job requeued in held state": Reason(
        _ACTION, "it was requeued and is held: orchestrator release JOB", "held"
    ),
    # scontrol requeuehold, with and without State=SpecialExit.
    "job requeued in .*state": Reason(
        _ACTION, "somebody requeued and held it: scontrol release JOB", "held"
    ),
    # Measured on 24.11: the reason of the last end stays until the next scheduling cycle.
    "NonZeroExitCode|RaisedSignal|TimeLimit|OutOfMemory|InactiveLimit": Reason(
        _WILL_START, "it was requeued; the reason is that of its last end"
    ),
    r"(QOS|Assoc)Max\w*(PerJob|PerNode|WallDuration)\w*": Reason(
        _NEVER, "it requests more than one job may use", "limit_reached"
    ),
    r"(QOS|Assoc)Min\w*": Reason(_NEVER, "it requests less than a job has to use", "limit_reached"),
    r"(QOS|Assoc)Grp\w*(Minutes|Wall)\w*": Reason(
        _LIMIT, "the time budget of the project is used up", "limit_reached"
    ),
    r"QOSMax\w*Per(User|Account)\w*|AssocMax\w*|Max\w*PerAccount": Reason(
        _LIMIT, "you use as much as you may at one time", "limit_reached"
    ),
    r"(QOS|Assoc)Grp\w*": Reason(
        _LIMIT, "the group uses as much as it may at one time", "limit_reached"
    ),
    # squeue prints free text after some of these words ("ReqNodeNotAvail, UnavailableNodes:n2").
    "None": Reason(_WILL_START, "the scheduler has not considered it yet"),
    "Priority": Reason(_WILL_START, "jobs of higher priority are ahead of it"),
    "Resources": Reason(_WILL_START, "it is next when enough nodes, CPUs or GPUs are free"),
    "BeginTime": Reason(_WILL_START, "it may not start before its begin time"),
    "Dependency": Reason(_WILL_START, "the jobs it depends on have not ended"),
    "Prolog": Reason(_WILL_START, "its nodes are being prepared"),
    "Cleaning": Reason(_WILL_START, "it was requeued, and its last attempt is being cleaned up"),
    "JobArrayTaskLimit": Reason(_LIMIT, "the limit of running tasks of its array is reached"),
    "Licenses": Reason(_WILL_START, "no license is free"),
    "Reservation": Reason(_WILL_START, "its reservation has not begun or is full"),
    "SchedDefer": Reason(_WILL_START, "the site starts jobs in scheduling cycles only"),
    "BurstBufferResources": Reason(_WILL_START, "the burst buffer is full"),
    "BurstBufferStageIn": Reason(_WILL_START, "its data is being copied to the burst buffer"),
    "FedJobLock": Reason(_WILL_START, "the clusters of the federation decide where it starts"),
    "MpiPortsBusy": Reason(_WILL_START, "no MPI port is free"),
    "NvidiaImexChannels": Reason(_WILL_START, "no NVIDIA IMEX channel is free"),
    "MaxPoweredUpNodes": Reason(_WILL_START, "the site has powered up as many nodes as it allows"),
    "Constraints": Reason(_WILL_START, "no node with the requested features is free"),
    "QOSUsageThreshold": Reason(_LIMIT, "the usage threshold of the QOS is exceeded"),
    "DependencyNeverSatisfied": Reason(
        _NEVER, "a job it depends on did not end as required; cancel it", "dependency"
    ),
    "BadConstraints": Reason(_NEVER, "no node has what it requests"),
    "PartitionNodeLimit": Reason(_NEVER, "it requests more nodes than the partition has or allows"),
    "PartitionTimeLimit": Reason(_NEVER, "its time limit is longer than the partition allows"),
    "PartitionConfig": Reason(
        _NEVER, "the partition cannot provide what it requests, such as the number of nodes"
    ),
    "MaxMemPerLimit": Reason(_NEVER, "it requests more memory than the partition allows"),
    "InvalidAccount": Reason(_NEVER, "its account is no longer valid", "bad_account"),
    "InvalidQOS": Reason(_NEVER, "its QOS is no longer valid", "bad_qos"),
    "AccountNotAllowed": Reason(_NEVER, "its account may not use this partition", "bad_account"),
    "QOSNotAllowed": Reason(_NEVER, "its QOS may not be used in this partition", "bad_qos"),
    "DeadLine": Reason(_NEVER, "it cannot end before its deadline", "deadline"),
    "JobHeldUser": Reason(
        _ACTION, "you or one of your tools held it: orchestrator release JOB", "held"
    ),
    "JobHeldAdmin": Reason(_ACTION, "an administrator held it: ask the site's support", "held"),
    "JobHoldMaxRequeue": Reason(_ACTION, "it is held because it was requeued too often", "held"),
    "ReservationDeleted": Reason(_ACTION, "its reservation was deleted", "held"),
    "PartitionDown": Reason(_ACTION, "the partition is down until an administrator starts it"),
    "PartitionInactive": Reason(_ACTION, "the partition does not start jobs at present"),
    "NodeDown": Reason(_ACTION, "a node that it requires is down"),
    "FrontEndDown": Reason(_ACTION, "the front end that has to start it is down"),
    "BurstBufferOperation": Reason(_ACTION, "the burst buffer failed: ask the site's support"),
    "ReqNodeNotAvail": Reason(_ACTION, "nodes that it requires are down, drained or reserved"),
    "SystemFailure": Reason(_ACTION, "Slurm itself failed: tell the site's support"),
}
_HELD_STATES = frozenset({JobState.REQUEUE_HOLD, JobState.SPECIAL_EXIT, JobState.RESV_DEL_HOLD})
PENDING_STATES = _HELD_STATES | {JobState.PENDING, JobState.REQUEUED}


def is_held(job: jobs.Job) -> bool:
    """Return whether the job is pending until somebody releases it.

    Measured: after `scontrol requeuehold` 24.11 shows PENDING with "job requeued in held state".
    """
    if job.state in _HELD_STATES:
        return True
    causes = ("held", "launch_failed")
    return job.state is JobState.PENDING and meaning(job.reason or "None").cause in causes


def meaning(reason: str) -> Reason:
    """Return what a reason means; jobs with unknown reasons are expected to start."""
    # squeue joins the reasons of pending array tasks: "BeginTime,JobHeldUser".
    several = re.split(r",(?=[A-Z])", reason.strip())
    if len(several) > 1:
        severity = list(Prospect)
        return max(map(meaning, several), key=lambda each: severity.index(each.prospect))
    known = (each for regex, each in _REASONS.items() if re.match(rf"(?:{regex})\b", reason))
    return next(known, Reason(_WILL_START, f"Slurm reports {reason}"))


def explain(job: jobs.Job) -> str:
    """Return what the job's reason means; "" if it has none."""
    reason = job.reason or ""
    if job.state not in PENDING_STATES:
        return "" if reason == "None" else reason
    if not reason:
        return ""
    known = meaning(reason)
    return f"{known.prospect.label}: {known.sentence} ({reason})"


def explain_stuck(job: jobs.Job) -> str:
    """Return why a pending job does not start without intervention; "" if it does."""
    is_pending = job.state in PENDING_STATES and job.reason
    is_stuck = is_pending and meaning(job.reason or "").prospect in (_ACTION, _NEVER)
    return explain(job) if is_stuck else ""
