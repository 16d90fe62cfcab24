"""`--dependency` with our own names in it: `afterok:@7`, `afterok:prep`, `afterok:sweep/lr`.

Slurm accepts only job IDs (man sbatch), so the names become IDs when sbatch is called.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, TypeAlias, cast

from orchestrator.jobs import records, states

Kind: TypeAlias = Literal["afterok", "afterany", "afternotok"]

#: Slurm's reason of a pending job that can never start because of its dependency.
NEVER_SATISFIED = "DependencyNeverSatisfied"

_PART = re.compile(r"(afterok|afterany|afternotok):(.+)")
_OURS = re.compile(r"@[0-9]+|(?!local-[0-9])[A-Za-z].*")
_SWEEP = "sweep/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """A job or sweep of ours in the text of a dependency."""

    kind: Kind
    #: `@7` or NAME
    name: str
    #: a sweep: all its points
    is_sweep: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dependency:
    """A job or sweep that a submission depends on, by our rows."""

    kind: Kind
    #: one of the two
    on_job: int | None = None
    on_sweep: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredDependency:
    id: int
    dependency: Dependency
    #: row of the continuation job on which it depends in Slurm by now; None: on no other job
    continuation: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """What the dependencies of a submission come to now."""

    #: the value of sbatch's --dependency; "": no dependency is left
    text: str = ""
    #: jobs that Slurm does not have or show now, as sentences; the submission is deferred
    unsent: tuple[str, ...] = ()
    #: why it can never start, as sentences
    never: tuple[str, ...] = ()
    #: one of the jobs has [retry]: it may be continued after a failure
    is_recovered: bool = False


def split(text: str | None) -> tuple[str | None, tuple[Reference, ...]]:
    """Return the part of a dependency that Slurm understands, and the references to ours."""
    if not text or "?" in text:
        return text, ()
    slurms: list[str] = []
    references: list[Reference] = []
    for part in text.split(","):
        parsed = _PART.fullmatch(part)
        words = parsed[2].split(":") if parsed else []
        names = {word: word.removeprefix(_SWEEP) for word in words}
        if parsed is None or not all(map(_OURS.fullmatch, names.values())):
            slurms.append(part)
            continue
        kind = cast("Kind", parsed[1])
        references += [
            Reference(kind=kind, name=names[word], is_sweep=names[word] != word) for word in words
        ]
    return ",".join(slurms) or None, tuple(references)


def never(kind: Kind, job: records.Job) -> str:
    """Return why a dependency on a job that ended can never be satisfied; "": it can be.

    For a job that is not continued, neither by Slurm nor by a recovery rule.
    """
    name = f"{job.job_id or f'@{job.row}'} ({job.name})"
    if job.state is states.JobState.NOT_SUBMITTED:
        return f"{kind}: {name} was never submitted"
    good = job.state is states.JobState.COMPLETED
    if (kind == "afterok" and not good) or (kind == "afternotok" and good):
        return f"{kind}: {name} ended {job.state}"
    return ""
