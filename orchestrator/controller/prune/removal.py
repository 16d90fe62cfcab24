"""Carries a clean-up out. It may be killed anywhere: the next one removes what is left.

The order for each job: whether it may go is checked once more in the transaction that marks it, and
its version grows, so that no other process changes it from an older view. Then its folder gets a
name that nothing uses. Then the folder is removed, and last the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, prune
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.metrics import ingest
from orchestrator.controller.prune import folders, references, snapshots
from orchestrator.controller.prune.plan import Group, Item, Plan, snapshot_item
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.prune import Kind

#: Groups that are checked and marked in one transaction.
_MARKED_AT_ONCE = 50
#: A transaction that deletes rows takes at most so long, as far as that can be foreseen.
_TRANSACTION_SECONDS = 0.2
_FIRST_DETAILS = 2_000
_FIRST_JOBS = 100
_MAX_PAUSE_SECONDS = 0.05
_DETAILS = {
    Kind.CHECKPOINTS: "pruned: checkpoints",
    Kind.RUN_FOLDER: prune.FOLDER,
    Kind.ROWS: prune.ROWS,
}


@dataclasses.dataclass
class Result:
    removed: list[Item] = dataclasses.field(default_factory=list)
    #: what could not be removed, and why
    problems: list[str] = dataclasses.field(default_factory=list)


def carry_out(context: contexts.Context, plan: Plan) -> Result:
    """Remove what was planned, unless something needs it by now."""
    result = Result()
    for item in plan.leftovers:
        if _remove(item.path.parent, item.path.name, result):
            result.removed.append(item)
    # Newest first: a job that depends on another one is newer, and its rows go before.
    for kind in _DETAILS:
        groups = [group for group in plan.groups if group.kind is kind]
        groups.sort(key=lambda group: -group.jobs[-1].row)
        for number in range(0, len(groups), _MARKED_AT_ONCE):
            _carry_out(context, groups[number : number + _MARKED_AT_ONCE], result)
    if plan.code:
        _remove_snapshots(context, result)
    return result


def _carry_out(context: contexts.Context, groups: Sequence[Group], result: Result) -> None:
    if groups[0].kind is Kind.RUN_FOLDER:
        groups = _with_stored_results(context, groups, result)
    approved = _approve(context, groups, result) if groups else []
    moved: list[tuple[Item, str | None]] = []
    complete: set[Path] = set()
    # The names first: to remove what is in the folders may take long.
    for item in (item for group in approved for item in group.items):
        try:
            moved.append((item, folders.move_away(item.path, item.checkpoints)))
        except OSError as error:
            result.problems.append(_problem(item.path, error))
    for item, name in moved:
        if name is None or _remove(item.path.parent, name, result):
            complete.add(item.path)
    if groups and groups[0].kind is Kind.ROWS:
        without_folders = [
            group for group in approved if all(item.path in complete for item in group.items)
        ]
        approved = _delete_rows(context, without_folders, result)
    for group in approved:
        result.removed += [item for item in group.items if item.path in complete]


def _with_stored_results(
    context: contexts.Context, groups: Sequence[Group], result: Result
) -> list[Group]:
    """Store what the logs still tell, metrics and causes of failures; return the groups of which
    all is stored.
    """
    selected = [job for group in groups for job in group.jobs]
    explanations.store_causes(context, [job.row for job in selected])
    deadline = deadlines.NEVER.within(ingest.READ_SECONDS)
    unread: set[int] = set()
    for group in groups:
        # One by one: a log that cannot be read must not keep the others.
        for job in group.jobs:
            with contextlib.suppress(errors.SpecError, errors.ConfigurationError):
                read = ingest.ingest(context, [job], report_notes=False, deadline=deadline)
                unread |= read.unread.keys()
    with context.store.reading() as work:
        by_row = work.jobs.by_row([job.row for job in selected])
    ready: list[Group] = []
    for group in groups:
        current = tuple(by_row[job.row] for job in group.jobs if job.row in by_row)
        if not unread.isdisjoint(job.row for job in group.jobs):
            names = naming.names_of(group.jobs)
            result.problems.append(
                f"{names}: the metrics in its logs are not all read yet; run the command again"
            )
        elif tuple(map(_end, current)) != tuple(map(_end, group.jobs)):
            result.problems.append(_changed(group))
        else:
            ready.append(dataclasses.replace(group, jobs=current))
    return ready


def _end(job: jobs.Job) -> tuple[object, ...]:
    return job.row, job.attempt, job.state, job.ended_at


def _approve(context: contexts.Context, groups: Sequence[Group], result: Result) -> list[Group]:
    """Mark the jobs of the groups that may still go, and return these groups."""
    is_rows = groups[0].kind is Kind.ROWS
    event = context.event(prune.EVENT, _DETAILS[groups[0].kind])
    safe: list[Group] = []
    for group in groups:
        first = [tasks[0] for tasks in naming.by_submission(group.jobs)]
        if why := next(filter(None, (folders.problem(context, job) for job in first)), ""):
            result.problems.append(f"{naming.names_of(group.jobs)}: {why}")
        else:
            safe.append(group)
    approved: list[Group] = []
    rows = [job.row for group in safe for job in group.jobs]
    with context.store.writing(durable=True) as work:
        members, by_row = references.members(context, work, rows, with_groups=is_rows)
        dependents = work.prune.dependents(list(by_row)) if is_rows else {}
        may_go = {unit.rows for unit in prune.units(members, dependents) if not unit.keep}
        for group in safe:
            versions = {job.row: job.version for job in group.jobs}
            if tuple(versions) not in may_go or not work.prune.claim(versions):
                result.problems.append(_changed(group))
                continue
            work.events.add_many(
                (job.row, dataclasses.replace(event, attempt=job.attempt)) for job in group.jobs
            )
            approved.append(group)
    return approved


def _changed(group: Group) -> str:
    return f"{naming.names_of(group.jobs)}: changed by another process meanwhile, and kept"


def _remove(parent: Path, name: str, result: Result) -> bool:
    try:
        folders.remove(parent, name)
    except OSError as error:
        result.problems.append(_problem(parent / name, error))
        return False
    return True


def _problem(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be removed completely ({error.strerror}). Close the programs that use it, "
        "and run the command again."
    )


class _ChangedError(errors.ConflictError):
    """A job was changed, or another one depends on it by now."""


@dataclasses.dataclass
class _Batches:
    """Transactions that delete as many rows as fit into their time."""

    context: contexts.Context
    #: of the jobs that are left, by row
    versions: dict[int, int]
    limit: int

    def run(self, delete: Callable[[unit_of_work.UnitOfWork, int], int]) -> bool:
        """Delete up to `limit` rows; return whether there may be more."""
        with self.context.store.writing() as work:
            began = time.monotonic()
            needed_by = set().union(*work.prune.dependents(self.versions).values())
            if needed_by - self.versions.keys() or not work.prune.are_unchanged(self.versions):
                raise _ChangedError
            count = delete(work, self.limit)
        seconds = max(time.monotonic() - began, 0.001)
        is_full = count >= self.limit
        self.limit = max(1, int(self.limit * min(2.0, _TRANSACTION_SECONDS / 2 / seconds)))
        # Another writer gets its turn.
        self.context.clock.sleep(min(seconds, _MAX_PAUSE_SECONDS))
        return is_full


def _delete_rows(context: contexts.Context, groups: Sequence[Group], result: Result) -> list[Group]:
    """Delete the rows of jobs; return the groups of which all rows are gone."""
    try:
        _delete_jobs(context, [job for group in groups for job in group.jobs])
        return list(groups)
    except _ChangedError:
        if len(groups) == 1:
            result.problems.append(_changed(groups[0]))
            return []
    # One by one: only what was changed stays.
    return [done for group in groups for done in _delete_rows(context, [group], result)]


def _delete_jobs(context: contexts.Context, selected: Sequence[jobs.Job]) -> None:
    """Delete jobs with all that belongs to them, in transactions of limited duration."""
    with context.store.reading() as work:
        # An earlier call may have deleted some before it found that one had changed.
        left = work.jobs.by_row([job.row for job in selected])
    # _approve has given each job its next version.
    versions = {job.row: job.version + 1 for job in selected if job.row in left}
    batches = _Batches(context, versions, _FIRST_DETAILS)
    rows = list(versions)

    def delete_groups(work: unit_of_work.UnitOfWork, limit: int) -> int:
        work.prune.delete_groups(rows)
        return 0

    def delete_jobs(work: unit_of_work.UnitOfWork, limit: int) -> int:
        # A job is newer than the job that it continues.
        newest = sorted(batches.versions, reverse=True)[:limit]
        work.prune.delete_jobs(newest)
        deleted.extend(newest)
        return len(newest)

    while batches.run(lambda work, limit: work.prune.delete_details(rows, limit)):
        pass
    batches.run(delete_groups)
    batches.limit = _FIRST_JOBS
    while batches.versions:
        deleted: list[int] = []
        batches.run(delete_jobs)
        for row in deleted:
            del batches.versions[row]


def _remove_snapshots(context: contexts.Context, result: Result) -> None:
    # Once more: rows that are gone by now may have named some.
    unused = snapshots.unused(context)
    try:
        snapshots.remove(context, unused)
    except (errors.OrchestratorError, OSError) as error:
        result.problems.append(str(error))
        return
    result.removed += map(snapshot_item, unused)
