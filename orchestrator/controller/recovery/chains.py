"""Chains: jobs that go on with one another, and what was decided between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from db import unit_of_work
from orchestrator import jobs, recovery
from orchestrator.controller.session import contexts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """One attempt of a chain that something was decided of, or its newest one."""

    job: jobs.Job
    attempt: int
    #: of that attempt
    state: jobs.JobState
    #: what followed; none: nothing is decided
    decision: recovery.StoredDecision | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """A job, those that it goes on with, and those that go on with it."""

    links: Sequence[Link] = ()
    #: the job that goes on with the one that was asked about
    continued_by: jobs.Job | None = None

    @property
    def planned(self) -> recovery.StoredDecision | None:
        """Return what is planned next."""
        last = self.links[-1].decision if self.links else None
        return last if last is not None and last.state == "planned" else None


def of(context: contexts.Context, job: jobs.Job) -> Chain:
    """Return the chain of a job; without links where it is alone and nothing was decided of it."""
    with context.store.reading() as work:
        rows = work.recovery.chain(job.row)
        decided = work.recovery.of_jobs(rows)
        if len(rows) == 1 and not decided:
            return Chain()
        query = jobs.JobQuery(rows=rows, limit=None)
        found = {one.row: one for one in work.jobs.find(query)}
        attempts = work.attempts.of_jobs(rows)
    links: list[Link] = []
    for row in rows:
        mine = [one for one in decided if one.job_row == row]
        states = {attempt.number: attempt.state for attempt in attempts.get(row, ())}
        links += [
            Link(
                job=found[row],
                attempt=one.attempt,
                state=states.get(one.attempt, found[row].state),
                decision=one,
            )
            for one in mine
        ]
        if not mine or mine[-1].attempt != found[row].attempt:
            now = found[row]
            links.append(Link(job=now, attempt=now.attempt, state=now.state))
    following = rows[rows.index(job.row) + 1 :]
    return Chain(links=links, continued_by=found[following[0]] if following else None)


def decisions(
    context: contexts.Context, several: Iterable[jobs.Job], *, attempt: int | None = None
) -> dict[int, recovery.StoredDecision]:
    """Return what was decided of an attempt of each job (none: its newest), by row."""
    wanted = {job.row: job.attempt if attempt is None else attempt for job in several}
    if not wanted:
        return {}
    with context.store.reading() as work:
        found = work.recovery.of_jobs(list(wanted))
    return {one.job_row: one for one in found if one.attempt == wanted[one.job_row]}


def newest(context: contexts.Context, job_rows: Sequence[int]) -> dict[int, jobs.Job]:
    """Return the last job of the chain of each of these, by the row that was asked for."""
    with context.store.reading() as work:
        last = work.recovery.last_in_chain(job_rows)
        query = jobs.JobQuery(rows=list(last.values()), limit=None)
        found = {job.row: job for job in work.jobs.find(query)} if last else {}
    return {row: found[now] for row, now in last.items() if now in found}


def newest_of(work: unit_of_work.UnitOfWork, several: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return each job, or the last job of the chain that continues it."""
    last = work.recovery.last_in_chain([job.row for job in several])
    continued = [last[job.row] for job in several if last[job.row] != job.row]
    if not continued:
        return list(several)
    query = jobs.JobQuery(rows=continued, limit=None)
    newest = {job.row: job for job in work.jobs.find(query)}
    return [newest.get(last[job.row], job) for job in several]
