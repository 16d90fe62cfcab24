"""Dependencies in the store: what a job waits for, and how it is with that."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from db import dependencies as queries
from db import statements
from db import sweeps as sweep_queries
from orchestrator import errors, jobs
from orchestrator.controller import rows, sweep_rows, unit_of_work
from orchestrator.jobs import dependency

#: Slurm's reason of a job that can never start, as things are.
IN_VAIN = queries.IN_VAIN


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """One thing that a submission waits for."""

    id: int
    depends: dependency.Depends
    #: the job that goes on where one of those ended, as Slurm was told; none: nothing was
    turned_to: int | None


class DependencyStore:
    """The dependencies within one transaction."""

    def __init__(self, db: statements.Session) -> None:
        self._db = db
        self._work = unit_of_work.UnitOfWork(db)

    def resolve(self, named: Sequence[dependency.Named]) -> list[dependency.Depends]:
        """Return what our own names mean now: of a name the newest.

        NotFoundError; ConflictError where several live jobs have the name.
        """
        return [each for one in named for each in self._meant(one)]

    def _meant(self, one: dependency.Named) -> list[dependency.Depends]:
        reference = one.reference
        if one.is_sweep:
            sweep = self._work.sweeps.named(reference)
            if sweep is None:
                raise errors.NotFoundError(
                    f"{one.kind}:sweep/{reference}: no sweep {reference!r} here; "
                    "`orchestrator sweep list` lists what is known"
                )
            return [dependency.Depends(kind=one.kind, on_sweep=sweep.row)]
        if reference.startswith("@"):
            job = self._work.job(int(reference[1:]))
            found = [] if job is None else [job]
        else:
            query = unit_of_work.JobQuery(names=(reference,), limit=1000, whole_arrays=True)
            found = self._work.jobs(query)
        if not found:
            raise errors.NotFoundError(
                f"{one.kind}:{reference}: no job {reference!r} here; "
                "`orchestrator status --all` lists what is known"
            )
        live = [job for job in found if not job.ended]
        if len({job.token for job in live}) > 1:
            names = ", ".join(f"@{job.row}" for job in live)
            raise errors.ConflictError(
                f"{one.kind}:{reference}: several live jobs have this name: {names}"
            )
        token = (live or found)[0].token
        mine = sorted(job.row for job in found if job.token == token)
        return [dependency.Depends(kind=one.kind, on_job=row) for row in mine]

    def add(self, job_row: int, depends: Sequence[dependency.Depends]) -> None:
        """Store what the submission with this first job waits for."""
        queries.add(self._db, [{"job_row": job_row, **dataclasses.asdict(one)} for one in depends])

    def of(self, job_row: int) -> list[Stored]:
        """Return what the submission of this job waits for."""
        return [_record(row) for row in queries.of_submission(self._db, job_row)]

    def dependents(self) -> list[int]:
        """Return those that wait in Slurm for a job that ended, or goes on, or in vain, as it says.

        Oldest first; of a submission one.
        """
        return queries.dependents(self._db, jobs.TERMINAL)

    def turn(self, some: Collection[Stored], to: int) -> None:
        """Store that Slurm was told to wait for this job in these dependencies."""
        queries.turn(self._db, [one.id for one in some], to)

    def standing_of(self, job_row: int) -> dependency.Standing:
        """Return how it is with what the submission of this job waits for."""
        return self.standing([one.depends for one in self.of(job_row)])

    def standing(self, depends: Sequence[dependency.Depends]) -> dependency.Standing:
        """Return how it is with these: where a job goes on elsewhere, with the one that does."""
        ids: dict[str, list[str]] = collections.defaultdict(list)
        unsent: list[str] = []
        never: list[str] = []
        is_recovered = False
        for kind in dict.fromkeys(one.kind for one in depends):
            mine = [one for one in depends if one.kind == kind]
            found = self._jobs(mine)
            for left, sweep in self._without_jobs(mine):
                points = f"{left} points of sweep {sweep.name}"
                if sweep.state == "open":
                    unsent.append(f"{points} are not submitted yet")
                else:
                    never.append(f"{kind}: {points} were never submitted, and it was cancelled")
            planned = queries.to_be_recovered(self._db, [job.row for job in found if job.ended])
            is_recovered |= any(job.recovers for job in found)
            live = []
            for job in found:
                if job.row in planned:
                    unsent.append(f"@{job.row} ({job.name}) ended {job.state} and is to go on")
                elif job.ended:
                    never += filter(None, [dependency.never(kind, job)])
                elif job.job_id is None:
                    unsent.append(f"@{job.row} ({job.name}) is not submitted yet")
                elif job.missing_since is not None:
                    # Slurm takes what it has purged for what has come, however it ended.
                    unsent.append(f"{job.job_id} ({job.name}) is looked for in Slurm")
                else:
                    live.append(job)
            ids[kind] += self._ids(live, found)
        return dependency.Standing(
            after_ok=tuple(ids["afterok"]),
            after_any=tuple(ids["afterany"]),
            after_not_ok=tuple(ids["afternotok"]),
            unsent=tuple(dict.fromkeys(unsent)),
            never=tuple(dict.fromkeys(never)),
            is_recovered=is_recovered,
        )

    def newest(self, one: dependency.Depends) -> int | None:
        """Return the newest job that goes on where one of these ended; none: none does."""
        if one.on_job is not None:
            found = self._work.recovery.last_in_chain([one.on_job])[one.on_job]
            return None if found == one.on_job else found
        continuing = [job.row for job in self._jobs([one]) if job.continues is not None]
        return max(continuing, default=None)

    def _without_jobs(
        self, depends: Sequence[dependency.Depends]
    ) -> Iterator[tuple[int, sweep_rows.StoredSweep]]:
        """Yield how many points of these sweeps have no job, and the sweep."""
        for one in depends:
            sweep = None if one.on_sweep is None else self._work.sweeps.get(one.on_sweep)
            if sweep is not None:
                groups = self._work.sweeps.groups([sweep.row]).get(sweep.row, [])
                if left := sum(group.points for group in groups if group.state is None):
                    yield left, sweep

    def _jobs(self, depends: Sequence[dependency.Depends]) -> list[jobs.Job]:
        """Return the jobs that go on last of these."""
        wanted = [one.on_job for one in depends if one.on_job is not None]
        for one in depends:
            if one.on_sweep is not None:
                found = rows.job_records(sweep_queries.jobs(self._db, one.on_sweep))
                wanted += [job.row for job in found]
        if not wanted:
            return []
        last = self._work.recovery.last_in_chain(wanted)
        query = unit_of_work.JobQuery(rows=tuple(set(last.values())), limit=None)
        return sorted(self._work.jobs(query), key=lambda job: job.row)

    def _ids(self, live: Sequence[jobs.Job], found: Sequence[jobs.Job]) -> list[str]:
        """Return the live jobs' IDs; of an array of which all tasks are meant the whole array's."""
        mine = collections.Counter(job.token for job in found)
        sizes: Mapping[str, int] = queries.sizes(self._db, list(mine)) if mine else {}
        return list(
            dict.fromkeys(
                str(job.array_job_id)
                if job.array_job_id is not None and mine[job.token] == sizes[job.token]
                else str(job.job_id)
                for job in live
            )
        )


def _record(row: sa.Row[Any]) -> Stored:
    return Stored(
        id=row.id,
        depends=dependency.Depends(
            kind=cast("dependency.Kind", row.kind), on_job=row.on_job, on_sweep=row.on_sweep
        ),
        turned_to=row.turned_to,
    )
