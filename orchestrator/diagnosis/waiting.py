"""Why a job waits, in plain words.

Source: squeue's reason codes (job_reason_codes.html, Slurm 24.11). squeue prints free text behind
some reasons ("ReqNodeNotAvail, UnavailableNodes:n2"), so they are told by their beginning.
"""

from __future__ import annotations

import enum
import re

from orchestrator import jobs


class Waiting(enum.Enum):
    """What has to happen before a waiting job starts."""

    #: it starts by itself
    WILL_START = "will start"
    #: a limit of the user, account or QOS has to free up
    LIMIT = "waits for a limit"
    #: somebody has to do something
    PERSON = "needs a person"
    #: this request can never start
    NEVER = "can never start"


_EXACT: dict[str, tuple[Waiting, str]] = {
    "None": (Waiting.WILL_START, "the scheduler has not looked at it yet"),
    "Priority": (Waiting.WILL_START, "jobs of higher priority are before it"),
    "Resources": (Waiting.WILL_START, "it is next when enough nodes, CPUs or GPUs are free"),
    "BeginTime": (Waiting.WILL_START, "it may not start before its begin time"),
    "Dependency": (Waiting.WILL_START, "it waits for the jobs it depends on"),
    "Prolog": (Waiting.WILL_START, "its nodes are being prepared"),
    "Cleaning": (Waiting.WILL_START, "it was requeued and its last attempt is being cleaned up"),
    "JobArrayTaskLimit": (Waiting.LIMIT, "its array's limit of running tasks is reached"),
    "Licenses": (Waiting.WILL_START, "it waits for a licence"),
    "Reservation": (Waiting.WILL_START, "its reservation has not begun or is full"),
    "SchedDefer": (Waiting.WILL_START, "the site starts jobs in its scheduling cycles only"),
    "BurstBufferResources": (Waiting.WILL_START, "it waits for room in the burst buffer"),
    "BurstBufferStageIn": (Waiting.WILL_START, "its data is copied to the burst buffer"),
    "FedJobLock": (Waiting.WILL_START, "the clusters of the federation agree who starts it"),
    "MpiPortsBusy": (Waiting.WILL_START, "it waits for free MPI ports"),
    "NvidiaImexChannels": (Waiting.WILL_START, "it waits for a free NVIDIA IMEX channel"),
    "MaxPoweredUpNodes": (Waiting.WILL_START, "the site has as many nodes powered up as it allows"),
    "Constraints": (Waiting.WILL_START, "no node with the features it asks for is free"),
    "QOSUsageThreshold": (Waiting.LIMIT, "the QOS's threshold of use is crossed"),
    "DependencyNeverSatisfied": (
        Waiting.NEVER,
        "a job it depends on ended another way than asked for; cancel it",
    ),
    "BadConstraints": (Waiting.NEVER, "no node has what it asks for"),
    "PartitionNodeLimit": (
        Waiting.NEVER,
        "it asks for more nodes than the partition has or allows",
    ),
    "PartitionTimeLimit": (
        Waiting.NEVER,
        "its time limit is longer than the partition allows",
    ),
    "PartitionConfig": (
        Waiting.NEVER,
        "the partition cannot give what it asks for, such as that many nodes",
    ),
    "MaxMemPerLimit": (Waiting.NEVER, "it asks for more memory than the partition allows"),
    "InvalidAccount": (Waiting.NEVER, "its account is not valid any more"),
    "InvalidQOS": (Waiting.NEVER, "its QOS is not valid any more"),
    "AccountNotAllowed": (Waiting.NEVER, "its account may not use this partition"),
    "QOSNotAllowed": (Waiting.NEVER, "its QOS may not be used here"),
    "DeadLine": (Waiting.NEVER, "it cannot end before its deadline"),
    "JobHeldUser": (Waiting.PERSON, "you or a tool of yours held it: orchestrator release JOB"),
    "JobHeldAdmin": (Waiting.PERSON, "an administrator held it: ask them"),
    "JobHoldMaxRequeue": (Waiting.PERSON, "it was requeued too often and is held"),
    "ReservationDeleted": (Waiting.PERSON, "its reservation was deleted"),
    "PartitionDown": (Waiting.PERSON, "the partition is down: an administrator has to start it"),
    "PartitionInactive": (Waiting.PERSON, "the partition takes no jobs to start at present"),
    "NodeDown": (Waiting.PERSON, "a node that it needs is down"),
    "FrontEndDown": (Waiting.PERSON, "the front end that would start it is down"),
    "BurstBufferOperation": (Waiting.PERSON, "the burst buffer failed: ask an administrator"),
    "ReqNodeNotAvail": (Waiting.PERSON, "nodes that it asks for are down, drained or reserved"),
    "SystemFailure": (Waiting.PERSON, "Slurm itself failed: tell an administrator"),
}
#: States of a job that waits, whatever flag squeue prints in place of PENDING.
_WAITING = (jobs.JobState.PENDING, jobs.JobState.REQUEUE_HOLD, jobs.JobState.SPECIAL_EXIT)
_PATTERNS: tuple[tuple[re.Pattern[str], Waiting, str], ...] = (
    (
        # "ReqNodeNotAvail, May be reserved for other job", "..., Reserved for maintenance"
        re.compile(r"ReqNodeNotAvail, .*[Rr]eserved for"),
        Waiting.WILL_START,
        "its nodes are reserved: it starts afterwards, or before if its time limit is short enough",
    ),
    (
        re.compile(r"launch failed requeued held"),
        Waiting.PERSON,
        "its start failed on the node and it is held: orchestrator release JOB",
    ),
    (
        re.compile(r"job requeued in held state"),
        Waiting.PERSON,
        "it was put back into the queue and is held: orchestrator release JOB",
    ),
    (
        # scontrol requeuehold, with and without State=SpecialExit.
        re.compile(r"job requeued in .*state"),
        Waiting.PERSON,
        "somebody put it back into the queue and held it: scontrol release JOB",
    ),
    (
        # The end of the last attempt stays the reason until the scheduler comes by (24.11).
        re.compile(r"NonZeroExitCode|RaisedSignal|TimeLimit|OutOfMemory|InactiveLimit"),
        Waiting.WILL_START,
        "it was put back into the queue; the reason is that of its last end",
    ),
    (
        re.compile(r"(QOS|Assoc)Max\w*(PerJob|PerNode|WallDuration)\w*"),
        Waiting.NEVER,
        "one job of yours may not ask for so much",
    ),
    (re.compile(r"(QOS|Assoc)Min\w*"), Waiting.NEVER, "a job here has to ask for more"),
    (
        re.compile(r"(Assoc|QOS)Grp\w*(Minutes|Wall)\w*"),
        Waiting.LIMIT,
        "the project's budget of time is used up",
    ),
    (
        re.compile(r"QOSMax\w*PerUser\w*|AssocMax\w*|QOSMax\w*PerAccount\w*|Max\w*PerAccount"),
        Waiting.LIMIT,
        "you have reached what you may use at one time",
    ),
    (
        re.compile(r"(QOS|Assoc)Grp\w*"),
        Waiting.LIMIT,
        "the group has reached what it may use at one time",
    ),
)
#: Between reasons; free text behind one has a blank after the comma.
_SEVERAL = re.compile(r",(?=[A-Z])")
_WORSE = (Waiting.WILL_START, Waiting.LIMIT, Waiting.PERSON, Waiting.NEVER)
# Of an array's waiting tasks squeue prints the reasons together: "BeginTime,JobHeldUser".
_HELD = re.compile(r"\bJobHeld(User|Admin)\b|\bJobHoldMaxRequeue\b|\brequeued (in )?held\b")
_HELD_STATES = frozenset(
    {jobs.JobState.REQUEUE_HOLD, jobs.JobState.SPECIAL_EXIT, jobs.JobState.RESV_DEL_HOLD}
)


def is_held(job: jobs.Job) -> bool:
    """Return whether the job waits until somebody releases it.

    Measured: after `scontrol requeuehold` 24.11 shows PENDING with "job requeued in held state".
    """
    if job.state in _HELD_STATES:
        return True
    return job.state is jobs.JobState.PENDING and _HELD.search(job.reason or "") is not None


def waiting(reason: str) -> tuple[Waiting, str]:
    """Return the class of a pending reason and a plain sentence; what is unknown may start."""
    several = _SEVERAL.split(reason.strip())
    if len(several) > 1:
        return max(map(waiting, several), key=lambda told: _WORSE.index(told[0]))
    for pattern, kind, sentence in _PATTERNS:
        if pattern.match(reason):
            return kind, sentence
    word = re.split(r"[\s,(]", reason.strip(), maxsplit=1)[0]
    if word in _EXACT:
        return _EXACT[word]
    return Waiting.WILL_START, f"Slurm says {reason}"


def explain_reason(job: jobs.Job) -> str:
    """Return why the job waits or ended so, in plain words; "" when there is nothing to say."""
    reason = job.reason or ""
    if job.state not in _WAITING:
        return "" if reason in ("", "None") else reason
    if not reason:
        return ""
    kind, sentence = waiting(reason)
    return f"{kind.value}: {sentence} ({reason})"


def explain_stuck(job: jobs.Job) -> str:
    """Return why the job does not start by itself, in plain words; "" when it does, or runs."""
    told = explain_reason(job) if job.state in _WAITING else ""
    return told if told.startswith((Waiting.NEVER.value, Waiting.PERSON.value)) else ""
