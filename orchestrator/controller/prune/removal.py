"""Carries a clean-up out. It may be killed anywhere: the next one removes what is left.

The order for each job: its version grows, so that no other process changes it from an older view.
Whether it may go is checked once more, and it is marked. Then its folder gets a name that nothing
uses. Then the folder is removed, and last the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

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
#: A transaction begins nothing more after so long, because other writers wait for it.
_BATCH_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 0.05
#: Changed between two looks at the clock.
_ROWS_AT_ONCE = 500
_JOBS_AT_ONCE = 50
_ENVIRONMENTS_AT_ONCE = 50
_DETAILS = {
    Kind.CHECKPOINTS: "pruned: checkpoints",
    Kind.RUN_FOLDER: prune.FOLDER,
    Kind.ROWS: prune.ROWS,
}

_Item = TypeVar("_Item")


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
    # Not only with rows: an interrupted removal may have left some.
    _in_batches(context, lambda work: work.prune.delete_environments(_ENVIRONMENTS_AT_ONCE) > 0)
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

    def claim(work: unit_of_work.UnitOfWork, part: Sequence[jobs.Job]) -> bool:
        return work.prune.claim({job.row: job.version for job in part})

    def mark(work: unit_of_work.UnitOfWork, part: Sequence[jobs.Job]) -> bool:
        if not work.prune.are_unchanged({job.row: job.version + 1 for job in part}):
            return False
        work.events.add_many(
            (job.row, dataclasses.replace(event, attempt=job.attempt)) for job in part
        )
        return True

    claimed = _of_all_parts(context, safe, claim)
    # Afterwards: an earlier change is seen here, and a later one of these jobs is refused.
    with context.store.reading() as work:
        rows = [job.row for group in claimed for job in group.jobs]
        members, by_row = references.members(context, work, rows, with_groups=is_rows)
        dependents = work.prune.dependents(list(by_row)) if is_rows else {}
    may_go = {unit.rows for unit in prune.units(members, dependents) if not unit.keep}
    unneeded = [group for group in claimed if tuple(job.row for job in group.jobs) in may_go]
    approved = _of_all_parts(context, unneeded, mark, durable=True)
    result.problems += [_changed(group) for group in safe if group not in approved]
    return approved


def _of_all_parts(
    context: contexts.Context,
    groups: Sequence[Group],
    change: Callable[[unit_of_work.UnitOfWork, Sequence[jobs.Job]], bool],
    *,
    durable: bool = False,
) -> list[Group]:
    """Change the jobs of each group in parts; return the groups of which no part was refused."""
    parts = [(number, part) for number, group in enumerate(groups) for part in _parts(group.jobs)]
    refused: set[int] = set()

    def step(work: unit_of_work.UnitOfWork) -> bool:
        number, part = parts.pop()
        if number not in refused and not change(work, part):
            refused.add(number)
        return bool(parts)

    if parts:
        _in_batches(context, step, durable=durable)
    return [group for number, group in enumerate(groups) if number not in refused]


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


def _in_batches(
    context: contexts.Context,
    step: Callable[[unit_of_work.UnitOfWork], bool],
    *,
    check: Callable[[unit_of_work.UnitOfWork], None] = lambda work: None,
    durable: bool = False,
) -> None:
    """Call `step` until it returns False, in transactions of limited duration.

    Each of them begins with `check`.
    """
    clock, is_more = context.clock, True
    while is_more:
        # A collection of garbage examines all planned jobs; 10,000 take 0.16 s of CPU time.
        gc.disable()
        try:
            with context.store.writing(durable=durable) as work:
                began = clock.boot_seconds()
                check(work)
                while (is_more := step(work)) and clock.boot_seconds() - began < _BATCH_SECONDS:
                    pass
        finally:
            gc.enable()
        # Another writer gets its turn.
        clock.sleep(min(clock.boot_seconds() - began, _MAX_PAUSE_SECONDS))


def _parts(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    return [items[first : first + _JOBS_AT_ONCE] for first in range(0, len(items), _JOBS_AT_ONCE)]


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
        sweeps, graphs = work.prune.groups_of(left)
    # _claim has given each job its next version.
    versions = {job.row: job.version + 1 for job in selected if job.row in left}

    def check(work: unit_of_work.UnitOfWork) -> None:
        needed_by = set().union(*work.prune.dependents(versions).values())
        if needed_by - versions.keys() or not work.prune.are_unchanged(versions):
            raise _ChangedError

    # The last part goes first. A job is newer than the job that it continues.
    parts = _parts(sorted(versions))
    with_details = parts.copy()

    def delete_details(work: unit_of_work.UnitOfWork) -> bool:
        if work.prune.delete_details(with_details[-1], _ROWS_AT_ONCE) < _ROWS_AT_ONCE:
            with_details.pop()
        return bool(with_details)

    def delete_jobs(work: unit_of_work.UnitOfWork) -> bool:
        rows = parts.pop()
        work.monitoring.keep_totals(rows)
        work.prune.delete_jobs(rows)
        for row in rows:
            del versions[row]
        return bool(parts)

    if not parts:
        return
    _in_batches(context, delete_details, check=check)
    _in_batches(
        context, lambda work: work.prune.delete_groups(sweeps, graphs, _ROWS_AT_ONCE), check=check
    )
    _in_batches(context, delete_jobs, check=check)


def _remove_snapshots(context: contexts.Context, result: Result) -> None:
    try:
        # Not those of the plan: rows that are gone by now may have named more.
        result.removed += map(snapshot_item, snapshots.remove(context))
    except (errors.OrchestratorError, OSError) as error:
        result.problems.append(str(error))
