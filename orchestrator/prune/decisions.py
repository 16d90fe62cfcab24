"""Which jobs may be removed, and which ones only together."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence

from orchestrator import jobs
from orchestrator.prune.records import Member, Unit

#: slurmctld keeps ended jobs for MinJobAge, 300 s by default, and can requeue them until then.
_REQUEUE_WITHIN = datetime.timedelta(hours=1)
UNSELECTED = "other jobs of their array, chain, sweep or graph are not selected"
_NEEDED = "jobs that depend on them stay"


def own_reason(job: jobs.Job, now: datetime.datetime) -> str:
    """Return why a job must stay, whatever refers to it; "" if it may go."""
    if job.is_deferred:
        return "deferred: they will be submitted later"
    if job.state is jobs.JobState.LOST:
        return "LOST: they may still be running"
    if job.state not in jobs.TERMINAL:
        return "not ended"
    if not job.settled:
        return "their end is not confirmed yet"
    if not job.is_over:
        return "[retry] may continue them"
    if job.scheduler == "slurm" and now - last_change(job) < _REQUEUE_WITHIN:
        return "ended less than an hour ago: Slurm may start them again"
    return ""


def last_change(job: jobs.Job) -> datetime.datetime:
    """Return when a job ended; for one that never started, when that was last observed."""
    return job.ended_at or job.observed_at or job.created_at


def units(
    members: Sequence[Member], dependents: Mapping[int, Collection[int]] | None = None
) -> list[Unit]:
    """Return the units of these jobs that contain a selected job, oldest first.

    members: the selected jobs and all that go only together with them: tasks of one array, jobs
    that continue one another, and jobs with a common group. Of a chain the last job decides whether
    it is selected.
    dependents: rows of jobs by the row of the job that they depend on. The latter stays while one
    of the former stays.

    A unit goes if all its jobs are selected and may go.
    """
    by_row = {member.row: member for member in members}
    selected = _selected(members)
    joined = _joined(members)
    keep: dict[int, str] = {}
    for number, rows in joined.items():
        reasons = [by_row[row].keep for row in rows if by_row[row].keep]
        if reasons:
            keep[number] = reasons[0]
        elif not selected.issuperset(rows):
            keep[number] = UNSELECTED
    unit_of = {row: number for number, rows in joined.items() for row in rows}
    needed = dependents or {}
    is_changed = True
    while is_changed:
        is_changed = False
        for row in needed.keys() & unit_of.keys():
            if unit_of[row] in keep:
                continue
            if any(other not in unit_of or unit_of[other] in keep for other in needed[row]):
                keep[unit_of[row]] = _NEEDED
                is_changed = True
    return [
        Unit(rows=tuple(rows), selected=chosen, keep=keep.get(number, ""))
        for number, rows in joined.items()
        if (chosen := tuple(row for row in rows if row in selected))
    ]


def _selected(members: Iterable[Member]) -> set[int]:
    """Return the rows of the selected jobs: of a chain all if its last job is selected."""
    newest_first = sorted(members, key=lambda member: member.row, reverse=True)
    rows = {member.row for member in newest_first}
    selected: set[int] = set()
    followers: dict[int, int] = {}
    for member in newest_first:
        # A job is newer than the job that it continues.
        following = followers.get(member.row)
        if member.is_selected if following is None else following in selected:
            selected.add(member.row)
        earlier = member.continues
        if earlier is not None and earlier in rows and earlier < member.row:
            followers[earlier] = member.row
    return selected


def _joined(members: Iterable[Member]) -> dict[int, list[int]]:
    """Return the rows of each unit, ascending, by the first of them."""
    parents: dict[object, object] = {}

    def root(item: object) -> object:
        while (parent := parents.setdefault(item, item)) != item:
            parents[item] = parents[parent]
            item = parent
        return item

    ordered = sorted(members, key=lambda member: member.row)
    for member in ordered:
        ties: list[object] = [f"token {member.token}", *member.groups]
        if member.continues is not None:
            ties.append(member.continues)
        for tie in ties:
            parents[root(tie)] = root(member.row)
    joined: dict[object, list[int]] = {}
    for member in ordered:
        joined.setdefault(root(member.row), []).append(member.row)
    return {rows[0]: rows for rows in joined.values()}
