"""The line of this machine's jobs: what a job waits for, and whose turn it is. Pure functions.

Dependencies mean what they mean to sbatch (man sbatch, --dependency), with local job IDs.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import re
from collections.abc import Callable, Iterator, Sequence

from orchestrator.jobs import JobState
from orchestrator.local import slots, spool

#: ID of a job, or of an array -> its entries, also those that have ended; empty: not known.
Look = Callable[[str], Sequence[spool.Entry]]
#: sbatch's kinds of dependency that mean something here, and singleton.
KINDS = ("after", "afterany", "afterok", "afternotok")


class Standing(enum.Enum):
    """What became of a dependency so far."""

    MET = "met"
    OPEN = "open"
    #: it can't be met any more
    NEVER = "never"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Condition:
    """One part of a dependency."""

    kind: str
    #: "local-7", "local-7_3"; "" behind singleton
    job_id: str = ""


def conditions(dependency: str) -> list[Condition]:
    """Return the parts of "afterok:local-1:local-2,singleton"; specs has found it well formed."""
    found = []
    for part in filter(None, re.split("[,?]", dependency)):
        kind, *job_ids = part.split(":")
        # _* is an array as a whole, as without it.
        named = [job_id.removesuffix("_*") for job_id in job_ids]
        found += [Condition(kind=kind, job_id=job_id) for job_id in named or [""]]
    return found


def standing(entry: spool.Entry, line: Sequence[spool.Entry], look: Look) -> Standing:
    """Return how it stands with what a waiting job depends on."""
    if not entry.dependency:
        return Standing.MET
    found = [_standing(one, entry, line, look) for one in conditions(entry.dependency)]
    # "?" between the parts: any of them will do (man sbatch).
    enough, spoilt = (any, all) if "?" in entry.dependency else (all, any)
    if enough(one is Standing.MET for one in found):
        return Standing.MET
    return Standing.NEVER if spoilt(one is Standing.NEVER for one in found) else Standing.OPEN


def turns(
    line: Sequence[spool.Entry], look: Look = lambda key: ()
) -> list[tuple[spool.Entry, tuple[str, ...]]]:
    """Return those of the line whose turn it is, and the slots that each gets."""
    running = [entry for entry in line if entry.state is JobState.RUNNING]
    tasks = collections.Counter(entry.number for entry in running)
    taken = {slot for entry in running for slot in entry.given}
    found = []
    for entry in line:
        most = entry.most_at_once
        is_full = most is not None and tasks[entry.number] >= most
        if entry.state is not JobState.PENDING or entry.held or is_full:
            continue
        if standing(entry, line, look) is not Standing.MET:
            continue
        given = tuple([slot for slot in entry.devices if slot not in taken][: entry.slots])
        if len(given) < entry.slots:
            # Nobody overtakes: a big job would wait for ever behind small ones.
            break
        tasks[entry.number] += 1
        taken.update(given)
        found.append((entry, given))
    return found


def reasons(line: Sequence[spool.Entry], look: Look) -> Iterator[tuple[spool.Entry, str]]:
    """Yield the entries of the line, and why each waits, in Slurm's words."""
    is_first = True
    for entry in line:
        if entry.state is not JobState.PENDING:
            yield entry, entry.note or "None"
        elif entry.held:
            yield entry, "JobHeldUser"
        elif (stands := standing(entry, line, look)) is Standing.NEVER:
            yield entry, "DependencyNeverSatisfied"
        elif stands is Standing.OPEN:
            yield entry, "Dependency"
        else:
            yield entry, "Resources" if is_first else "Priority"
            is_first = False


def gpus(entry: spool.Entry) -> int:
    """Return how many GPUs the job gets."""
    return len([slot for slot in entry.devices if not slots.is_plain(slot)][: entry.slots])


def _standing(
    condition: Condition, entry: spool.Entry, line: Sequence[spool.Entry], look: Look
) -> Standing:
    if condition.kind == "singleton":
        # NAME without the token is what its user calls it.
        names = [one.name.rpartition(".")[0] for one in line if one.number < entry.number]
        return Standing.OPEN if entry.name.rpartition(".")[0] in names else Standing.MET
    others = look(condition.job_id)
    if not others:
        return Standing.NEVER
    if condition.kind == "after":
        # Begun, or cancelled before that.
        waits = any(one.state is JobState.PENDING and not one.ended for one in others)
        return Standing.OPEN if waits else Standing.MET
    if any(one.state in spool.LIVE for one in others):
        return Standing.OPEN
    is_good = all(one.state is JobState.COMPLETED for one in others)
    if condition.kind == "afterany" or is_good is (condition.kind == "afterok"):
        return Standing.MET
    return Standing.NEVER
