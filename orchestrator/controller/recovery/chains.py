"""Chains: jobs that continue one another, and the decisions between them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from db import unit_of_work
from orchestrator import jobs, recovery
from orchestrator.controller.session import contexts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """One attempt of a job, or of a job that it continues or is continued by."""

    job: jobs.Job
    attempt: int
    #: of that attempt
    state: jobs.JobState
    #: about its end; the newest attempt may have none
    decision: recovery.StoredDecision | None = None


def chain_of(context: contexts.Context, job: jobs.Job) -> list[Link]:
    """Return the chain of a job; empty if it is alone and there is no decision about it."""
    with context.store.reading() as work:
        rows = work.recovery.chain(job.row)
        decisions = work.recovery.of_jobs(rows)
        if len(rows) == 1 and not decisions:
            return []
        members = work.jobs.by_row(rows)
        attempts = work.attempts.of_jobs(rows)
    links: list[Link] = []
    for row in rows:
        member = members[row]
        states = {attempt.number: attempt.state for attempt in attempts.get(row, ())}
        of_job = [decision for decision in decisions if decision.job_row == row]
        for decision in of_job:
            state = states.get(decision.attempt, member.state)
            links.append(Link(job=member, attempt=decision.attempt, state=state, decision=decision))
        if not of_job or of_job[-1].attempt != member.attempt:
            links.append(Link(job=member, attempt=member.attempt, state=member.state))
    return links


def decisions(
    context: contexts.Context, selected: Iterable[jobs.Job], *, attempt: int | None = None
) -> dict[int, recovery.StoredDecision]:
    """Return by row the decision about one attempt of each job; default: the newest attempt."""
    attempts = {job.row: job.attempt if attempt is None else attempt for job in selected}
    if not attempts:
        return {}
    with context.store.reading() as work:
        stored = work.recovery.of_jobs(list(attempts))
    return {each.job_row: each for each in stored if each.attempt == attempts[each.job_row]}


def last_jobs(context: contexts.Context, job_rows: Sequence[int]) -> dict[int, jobs.Job]:
    """Return by row the last job of the chain of each of these jobs."""
    with context.store.reading() as work:
        last = work.recovery.last_in_chain(job_rows)
        by_row = work.jobs.by_row(list(last.values()))
    return {row: by_row[last_row] for row, last_row in last.items() if last_row in by_row}


def owners(work: unit_of_work.UnitOfWork, selected: Sequence[jobs.Job]) -> dict[int, int]:
    """Return, by row of each job of their chains, the row of the selected job.

    The rows are in the order of the selected jobs and of their chains. If several jobs of a chain
    are selected, each of them is alone.
    """
    last = work.recovery.last_in_chain([job.row for job in selected])
    counts = collections.Counter(last.values())
    result: dict[int, int] = {}
    for job in selected:
        is_alone = job.continues is None and last[job.row] == job.row
        is_shared = counts[last[job.row]] > 1
        rows = [job.row] if is_alone or is_shared else work.recovery.chain(job.row)
        result |= dict.fromkeys(rows, job.row)
    return result


def continued(work: unit_of_work.UnitOfWork, selected: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return each job, or the last job of the chain that continues it."""
    last = work.recovery.last_in_chain([job.row for job in selected])
    by_row = work.jobs.by_row([last[job.row] for job in selected if last[job.row] != job.row])
    return [by_row.get(last[job.row], job) for job in selected]
