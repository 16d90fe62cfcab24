"""`--dependency` with our own names in it: `afterok:@7`, `afterok:prep`, `afterok:sweep/lr`.

Slurm knows job IDs alone (man sbatch), so what it is told is made when sbatch is called.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal, TypeAlias, cast

from orchestrator.jobs import records, states

Kind: TypeAlias = Literal["afterok", "afterany", "afternotok"]

_PART = re.compile(r"(afterok|afterany|afternotok):(.+)")
_OURS = re.compile(r"@[0-9]+|(?!local-[0-9])[A-Za-z].*")
_SWEEP = "sweep/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """One of our own names in a dependency."""

    kind: Kind
    #: `@7` or NAME
    reference: str
    #: of a sweep: all its points
    is_sweep: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Depends:
    """What a job waits for, by our rows."""

    kind: Kind
    #: one of the two
    on_job: int | None = None
    on_sweep: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How it is with what a job waits for."""

    #: IDs of the jobs whose good end, end, bad end Slurm is to wait for
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    after_not_ok: tuple[str, ...] = ()
    #: what Slurm does not have yet, or show now, in words; then the job itself has to wait
    unsent: tuple[str, ...] = ()
    #: why it can never start, in words
    never: tuple[str, ...] = ()
    #: one of those is under [retry]: where it fails it may go on
    is_recovered: bool = False

    @property
    def text(self) -> str:
        """As sbatch takes it; "": nothing is left to wait for."""
        kinds = {"afterok": self.after_ok, "afterany": self.after_any}
        kinds["afternotok"] = self.after_not_ok
        return ",".join(":".join([kind, *ids]) for kind, ids in kinds.items() if ids)


def split(text: str | None) -> tuple[str | None, tuple[Named, ...]]:
    """Return what Slurm itself understands of a dependency, and our own names in it."""
    if not text or "?" in text:
        return text, ()
    slurms: list[str] = []
    named: list[Named] = []
    for part in text.split(","):
        found = _PART.fullmatch(part)
        words = found[2].split(":") if found else []
        if found is None or not all(_OURS.fullmatch(_bare(word)) for word in words):
            slurms.append(part)
            continue
        named += [
            Named(
                kind=cast("Kind", found[1]),
                reference=_bare(word),
                is_sweep=word.startswith(_SWEEP),
            )
            for word in words
        ]
    return ",".join(slurms) or None, tuple(named)


def _bare(word: str) -> str:
    return word.removeprefix(_SWEEP)


def never(kind: Kind, job: records.Job) -> str:
    """Return why a job that ended keeps who waits for it from ever starting; "": it does not.

    For a job of which nothing more comes, by itself or by a recovery rule.
    """
    name = f"{job.job_id or f'@{job.row}'} ({job.name})"
    if job.state is states.JobState.NOT_SUBMITTED:
        return f"{kind}: {name} was never submitted"
    good = job.state is states.JobState.COMPLETED
    if (kind == "afterok" and not good) or (kind == "afternotok" and good):
        return f"{kind}: {name} ended {job.state}"
    return ""
