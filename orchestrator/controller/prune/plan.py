"""What a clean-up would remove, and why the other selected jobs stay. Nothing is changed."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import jobs, prune
from orchestrator.controller.prune import folders, references, snapshots
from orchestrator.controller.session import contexts
from orchestrator.files import disk_use
from orchestrator.jobs import naming
from orchestrator.prune import Kind, decisions

#: Files that are examined for their sizes.
MAX_FILES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    #: of these jobs only, if `rows` or another field is given
    query: jobs.JobQuery
    #: the jobs ended earlier
    ended_before: datetime.datetime | None = None
    #: more than this would be removed of a job, or of jobs that go together
    larger_than_bytes: int | None = None
    #: of CHECKPOINTS, RUN_FOLDER, ROWS
    kinds: frozenset[Kind] = frozenset()
    all_checkpoints: bool = False
    #: remove code snapshots that nothing refers to
    code: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item:
    """What is removed of one submission."""

    kind: Kind
    #: the job, or the tasks of the array; empty: it belongs to no job
    jobs: tuple[jobs.Job, ...] = ()
    path: Path
    #: None: not examined, because there are too many files
    size_bytes: int | None
    #: why it may go
    reason: str
    #: None: the whole folder
    checkpoints: tuple[folders.Checkpoints, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """What goes only together."""

    kind: Kind
    #: ascending by row
    jobs: tuple[jobs.Job, ...]
    items: tuple[Item, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    groups: Sequence[Group]
    #: what interrupted removals left
    leftovers: Sequence[Item]
    #: whether unused code snapshots go
    code: bool
    snapshots: Sequence[snapshots.Snapshot]
    #: the selected jobs that stay, by the reason
    kept: dict[str, list[jobs.Job]]
    #: whether there were too many files to examine all
    is_cut: bool

    @property
    def items(self) -> list[Item]:
        """Return all that goes, the largest first."""
        items = [item for group in self.groups for item in group.items]
        items += self.leftovers
        items += map(snapshot_item, self.snapshots)
        return sorted(items, key=lambda item: -(item.size_bytes or 0))


def snapshot_item(snapshot: snapshots.Snapshot) -> Item:
    return Item(
        kind=Kind.SNAPSHOT,
        path=snapshot.path,
        size_bytes=snapshot.size_bytes,
        reason="no stored job, sweep, schedule or graph names it",
    )


def make(context: contexts.Context, selection: Selection) -> Plan:
    """Return what would be removed."""
    examiner = disk_use.Examiner(MAX_FILES)
    groups: list[Group] = []
    kept: dict[str, list[jobs.Job]] = collections.defaultdict(list)
    with context.store.reading() as work:
        interrupted = work.prune.marked_for_deletion()
        selected = _selected(work, selection) if selection.kinds else []
    if interrupted:
        all_sizes = dataclasses.replace(selection, larger_than_bytes=None)
        groups += _groups(context, all_sizes, Kind.ROWS, interrupted, examiner, {})
    leaving = {job.row for group in groups for job in group.jobs}
    # What removes most comes first: rows include run folders, and these the checkpoints.
    for kind in (Kind.ROWS, Kind.RUN_FOLDER, Kind.CHECKPOINTS):
        if kind in selection.kinds:
            rows = [row for row in selected if row not in leaving]
            new = _groups(context, selection, kind, rows, examiner, kept)
            groups += new
            leaving |= {job.row for group in new for job in group.jobs}
    kept = {
        reason: remaining
        for reason, listed in kept.items()
        if (remaining := [job for job in dict.fromkeys(listed) if job.row not in leaving])
    }
    return Plan(
        groups=groups,
        leftovers=[
            Item(
                kind=Kind.LEFTOVER,
                path=path,
                size_bytes=_size(examiner, path),
                reason="left by an interrupted prune",
            )
            for path in folders.leftovers(context)
        ],
        code=selection.code,
        snapshots=snapshots.unused(context) if selection.code else [],
        kept=kept,
        is_cut=examiner.is_over,
    )


def _selected(work: unit_of_work.UnitOfWork, selection: Selection) -> list[int]:
    found = work.jobs.find(selection.query)
    before = selection.ended_before
    return [job.row for job in found if before is None or decisions.last_change(job) < before]


def _groups(
    context: contexts.Context,
    selection: Selection,
    kind: Kind,
    rows: Sequence[int],
    examiner: disk_use.Examiner,
    kept: dict[str, list[jobs.Job]],
) -> list[Group]:
    """Return what goes of these jobs; the others are added to `kept`."""
    with context.store.reading() as work:
        is_rows = kind is Kind.ROWS
        members, by_row = references.members(context, work, rows, with_groups=is_rows)
        dependents = work.prune.dependents(list(by_row)) if is_rows else {}
    # Run folders are examined afterwards: that may take long.
    groups: list[Group] = []
    for unit in prune.units(members, dependents):
        of_unit = [by_row[row] for row in unit.rows]
        submissions = naming.by_submission(of_unit)
        keep = unit.keep or next(
            filter(None, (folders.problem(context, tasks[0]) for tasks in submissions)), ""
        )
        if keep:
            kept.setdefault(keep, []).extend(by_row[row] for row in unit.selected)
            continue
        items = [
            item
            for tasks in submissions
            if (item := _item(kind, tasks, selection, examiner)) is not None
        ]
        # Each size is known, or the limit of files is reached.
        size_bytes = sum(item.size_bytes or 0 for item in items)
        limit = selection.larger_than_bytes
        if items and (limit is None or size_bytes > limit):
            groups.append(Group(kind=kind, jobs=tuple(of_unit), items=tuple(items)))
    return groups


def _item(
    kind: Kind, tasks: Sequence[jobs.Job], selection: Selection, examiner: disk_use.Examiner
) -> Item | None:
    """Return what goes of one submission; None: there is nothing."""
    run_dir = Path(tasks[0].run_dir)
    chosen: tuple[folders.Checkpoints, ...] | None = None
    if kind is Kind.CHECKPOINTS:
        chosen = tuple(folders.checkpoints(run_dir, all_of_them=selection.all_checkpoints))
        if not chosen:
            return None
        paths = [
            run_dir / each.folder / name
            for each in chosen
            for name in (each.names if each.names is not None else [""])
        ]
        sizes = [_size(examiner, path) for path in paths]
        size_bytes = None if None in sizes else sum(size or 0 for size in sizes)
    elif kind is Kind.RUN_FOLDER and not run_dir.exists():
        return None
    else:
        size_bytes = _size(examiner, run_dir)
    last = max(tasks, key=decisions.last_change)
    states = ", ".join(dict.fromkeys(str(task.state) for task in tasks))
    at = decisions.last_change(last).astimezone()
    return Item(
        kind=kind,
        jobs=tuple(tasks),
        path=run_dir,
        size_bytes=size_bytes,
        reason=f"{states} since {at:%Y-%m-%d}",
        checkpoints=chosen,
    )


def _size(examiner: disk_use.Examiner, path: Path) -> int | None:
    size_bytes = examiner.size_bytes(path)
    return None if examiner.is_over else size_bytes
