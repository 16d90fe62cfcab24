"""What Slurm's reasons for pending jobs mean. The reasons are in pending_reasons.toml."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from orchestrator import jobs
from orchestrator.diagnosis.causes import Cause
from orchestrator.jobs import JobState
from orchestrator.toml import documents


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
    #: a template for the numbers behind it
    numbers: str = ""


_HELD_STATES = frozenset({JobState.REQUEUE_HOLD, JobState.SPECIAL_EXIT, JobState.RESV_DEL_HOLD})
PENDING_STATES = _HELD_STATES | {JobState.PENDING, JobState.REQUEUED}


@functools.cache
def known() -> Mapping[str, Reason]:
    """Return the meaning of each reason, by a regex for its beginning: the first match counts."""
    return {
        regex: Reason(Prospect(prospect), **meaning)
        for prospect, reasons in documents.shipped("pending_reasons.toml").items()
        for regex, meaning in reasons.items()
    }


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
    # Only the regexes up to the first match are compiled.
    matches = (each for regex, each in known().items() if re.match(rf"(?:{regex})\b", reason))
    return next(matches, Reason(Prospect.WILL_START, f"Slurm reports {reason}"))


def reason_sentence(job: jobs.Job) -> str:
    """Return what the job's reason means; "" if it has none."""
    reason = job.reason or ""
    if job.state not in PENDING_STATES:
        return "" if reason == "None" else reason
    if not reason:
        return ""
    known = meaning(reason)
    return f"{known.prospect.label}: {known.sentence} ({reason})"


def stuck_sentence(job: jobs.Job) -> str:
    """Return why a pending job does not start without intervention; "" if it does."""
    if job.state not in PENDING_STATES or not job.reason:
        return ""
    is_stuck = meaning(job.reason).prospect in (Prospect.ACTION, Prospect.NEVER)
    return reason_sentence(job) if is_stuck else ""
