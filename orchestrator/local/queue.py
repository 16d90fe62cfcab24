"""The queue of this machine's jobs: dependencies, and which jobs start next. Pure functions.

Dependencies work as for sbatch (man sbatch, --dependency), with local job IDs.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from collections.abc import Callable, Iterator, Sequence

from orchestrator.jobs import JobState
from orchestrator.local import slots
from orchestrator.local.records import LIVE, Entry

#: ID of a job or array -> its entries, also those that have ended; empty: there is no such job.
Find = Callable[[str], Sequence[Entry]]
#: The kinds of sbatch's dependencies that work here, besides singleton.
KINDS = ("after", "afterany", "afterok", "afternotok")


class DependencyStatus(enum.Enum):
    """Whether a dependency allows the job to start."""

    MET = "met"
    OPEN = "open"
    #: it can never be met
    NEVER = "never"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    kind: str
    #: "local-7", "local-7_3"; "" for singleton
    job_id: str = ""


def conditions(dependency: str) -> list[Condition]:
    """Return the parts of a well-formed dependency: "afterok:local-1:local-2,singleton"."""
    parts = []
    for part in filter(None, re.split("[,?]", dependency)):
        kind, *job_ids = part.split(":")
        # `local-7_*` is the whole array, like `local-7`.
        ids = [job_id.removesuffix("_*") for job_id in job_ids] or [""]
        parts += [Condition(kind=kind, job_id=job_id) for job_id in ids]
    return parts


def dependency_status(entry: Entry, queue: Sequence[Entry], find: Find) -> DependencyStatus:
    """Return the status of a pending job's dependency."""
    statuses = [_status(part, entry, queue, find) for part in conditions(entry.dependency)]
    # Parts separated by "?": any of them is enough (man sbatch).
    enough, hopeless = (any, all) if "?" in entry.dependency else (all, any)
    if enough(status is DependencyStatus.MET for status in statuses):
        return DependencyStatus.MET
    if hopeless(status is DependencyStatus.NEVER for status in statuses):
        return DependencyStatus.NEVER
    return DependencyStatus.OPEN


def next_jobs(
    queue: Sequence[Entry], find: Find = lambda key: ()
) -> list[tuple[Entry, tuple[str, ...]]]:
    """Return the jobs that can start now, each with its slots."""
    tasks = _running_tasks(queue)
    used = {slot for entry in queue if entry.state is JobState.RUNNING for slot in entry.given}
    starts = []
    for entry in queue:
        if entry.state is not JobState.PENDING or entry.held or _is_at_limit(entry, tasks):
            continue
        if dependency_status(entry, queue, find) is not DependencyStatus.MET:
            continue
        free = tuple([slot for slot in entry.devices if slot not in used][: entry.slots])
        if len(free) < entry.slots:
            # Later jobs do not overtake: a large job would never start behind small ones.
            break
        tasks[entry.number] += 1
        used.update(free)
        starts.append((entry, free))
    return starts


def reasons(queue: Sequence[Entry], find: Find) -> Iterator[tuple[Entry, str]]:
    """Yield the entries and their pending reasons, in Slurm's words."""
    tasks = _running_tasks(queue)
    is_first = True
    for entry in queue:
        if entry.state is not JobState.PENDING:
            yield entry, entry.note or "None"
        elif entry.held:
            yield entry, "JobHeldUser"
        elif (status := dependency_status(entry, queue, find)) is DependencyStatus.NEVER:
            yield entry, "DependencyNeverSatisfied"
        elif status is DependencyStatus.OPEN:
            yield entry, "Dependency"
        elif _is_at_limit(entry, tasks):
            yield entry, "JobArrayTaskLimit"
        else:
            yield entry, "Resources" if is_first else "Priority"
            is_first = False


def gpus(entry: Entry) -> int:
    return len([slot for slot in entry.devices if not slots.is_plain(slot)][: entry.slots])


def _running_tasks(queue: Sequence[Entry]) -> collections.Counter[int]:
    """Return the number of running tasks by the number of their array."""
    return collections.Counter(entry.number for entry in queue if entry.state is JobState.RUNNING)


def _is_at_limit(entry: Entry, tasks: collections.Counter[int]) -> bool:
    return entry.most_at_once is not None and tasks[entry.number] >= entry.most_at_once


def _status(
    condition: Condition, entry: Entry, queue: Sequence[Entry], find: Find
) -> DependencyStatus:
    if condition.kind == "singleton":
        # The name without its token is the one that the user gave.
        names = {_user_name(other) for other in queue if other.number < entry.number}
        return DependencyStatus.OPEN if _user_name(entry) in names else DependencyStatus.MET
    jobs = find(condition.job_id)
    if not jobs:
        return DependencyStatus.NEVER
    if condition.kind == "after":
        # Started, or cancelled before that.
        is_open = any(job.state is JobState.PENDING and not job.ended for job in jobs)
        return DependencyStatus.OPEN if is_open else DependencyStatus.MET
    if any(job.state in LIVE for job in jobs):
        return DependencyStatus.OPEN
    succeeded = all(job.state is JobState.COMPLETED for job in jobs)
    if condition.kind == "afterany" or succeeded is (condition.kind == "afterok"):
        return DependencyStatus.MET
    return DependencyStatus.NEVER


def _user_name(entry: Entry) -> str:
    return entry.name.rpartition(".")[0]
