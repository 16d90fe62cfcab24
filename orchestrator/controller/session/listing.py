"""The list of jobs that `status` shows."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts, queries, selection


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """Which jobs are listed: those to which all given conditions apply."""

    references: Sequence[str] = ()
    states: Sequence[jobs.JobState] = ()
    names: Sequence[str] = ()
    labels: Sequence[str] = ()
    partitions: Sequence[str] = ()
    #: names, or one sweep: "@3"
    sweeps: Sequence[str] = ()
    #: submitted since
    since: datetime.datetime | None = None
    #: also jobs that ended more than a day ago; with another condition they always are
    all: bool = False

    @property
    def has_conditions(self) -> bool:
        return any(value for name, value in vars(self).items() if name != "all")

    def query(self, context: contexts.Context, limit: int | None) -> jobs.JobQuery:
        """Return the query, without the references. NotFoundError for an unknown sweep."""
        is_recent = not self.all and not self.has_conditions
        names, rows = selection.sweep_names_and_rows(context, self.sweeps)
        return jobs.JobQuery(
            sweeps=names,
            sweep_rows=rows,
            states=self.states,
            since=self.since,
            live_or_since=context.clock.now() - queries.RECENT if is_recent else None,
            limit=limit,
            names=self.names,
            labels=self.labels,
            partitions=self.partitions,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    #: newest first, or in the order of the references
    jobs: list[jobs.Job]
    #: "": Slurm answered
    slurm_error: str
    damage: list[errors.DamagedRowError]


def read(context: contexts.Context, references: Sequence[str], query: jobs.JobQuery) -> Listed:
    """Return the jobs of a query, or only those of these references that it selects."""
    with context.store.reading():
        named = [job.row for word in references for job in selection.jobs_of(context, word)]
        if references:
            query = dataclasses.replace(query, rows=named, limit=None)
        matching, slurm_error, damage = queries.list_readable(context, query)
    if references:
        order = {row: number for number, row in enumerate(named)}
        matching.sort(key=lambda job: order[job.row])
    return Listed(jobs=matching, slurm_error=slurm_error, damage=damage)
