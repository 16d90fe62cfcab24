"""What needs jobs: live jobs, baselines, schedules, sweeps and graphs."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from db import unit_of_work
from orchestrator import jobs, prune
from orchestrator.controller.schedules import regression_check, submit_later
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming

#: A requeue that was requested shows in the state of the job by then.
_REQUESTED_WITHIN = datetime.timedelta(hours=1)
#: What the source of a baseline names (controller/reports/studies.py): `jobs 123, @9, local-7` and
#: `sweep NAME (@3)`.
_JOBS = re.compile(r"jobs (?P<names>.+)")
_SWEEP = re.compile(r"sweep .+ \(@(?P<row>[0-9]+)\)")


def members(
    context: contexts.Context,
    work: unit_of_work.UnitOfWork,
    selected: Sequence[int],
    *,
    with_groups: bool,
) -> tuple[list[prune.Member], dict[int, jobs.Job]]:
    """Return these jobs and those that go only together with them, each with why it must stay.

    with_groups: rows are to go, so the jobs of sweeps and graphs go only together.
    """
    rows = work.prune.closure(selected, with_groups=with_groups)
    by_row = work.jobs.by_row(rows)
    groups = work.prune.groups(rows)
    reasons: dict[int, str] = {}
    # The first reason of a job is reported.
    now = context.clock.now()
    for row, job in by_row.items():
        if reason := prune.own_reason(job, now):
            reasons[row] = reason
    for row in work.prune.asked_since(rows, now - _REQUESTED_WITHIN):
        reasons.setdefault(row, "Slurm was asked to change them within the last hour")
    for row, reason in _needed(work, by_row, groups):
        reasons.setdefault(row, reason)
    chosen = set(selected)
    listed = [
        prune.Member(
            row=row,
            token=job.token,
            continues=job.continues,
            groups=groups.get(row, frozenset()) if with_groups else frozenset(),
            is_selected=row in chosen,
            keep=reasons.get(row, ""),
        )
        for row, job in by_row.items()
    ]
    return listed, by_row


def _needed(
    work: unit_of_work.UnitOfWork,
    by_row: Mapping[int, jobs.Job],
    groups: Mapping[int, Collection[str]],
) -> Iterator[tuple[int, str]]:
    """Yield jobs that are needed, and by what; other jobs may be among them."""
    rows = list(by_row)
    for row in work.dependencies.may_be_recovered(rows):
        yield row, "[retry] may continue them"
    yield from _depended_on(work, rows)
    unfinished = work.prune.unfinished_sweeps()
    names = {f"sweep {sweep}" for sweep in unfinished}
    for row, of_row in groups.items():
        if not names.isdisjoint(of_row):
            yield row, "points of a sweep that is not finished"
    yield from _in_graphs(work, rows, {*unfinished})
    yield from _in_baselines(work)
    yield from _in_schedules(work)
    rows_of: dict[str, list[int]] = {}
    for row, job in by_row.items():
        rows_of.setdefault(job.token, []).append(row)
    for token in _named(work, rows_of, unfinished):
        for row in rows_of[token]:
            yield row, "the spec or script of a live job, schedule, sweep or graph names them"


def _depended_on(work: unit_of_work.UnitOfWork, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    dependents = work.prune.dependents(rows)
    others = work.jobs.by_row({row for needed_by in dependents.values() for row in needed_by})
    for row, needed_by in dependents.items():
        # Any task of a dependent array.
        tokens = {others[other].token for other in needed_by if other in others}
        if any(not job.is_over for job in work.jobs.of_submissions(tokens)):
            yield row, "a job that has not ended depends on them"


def _in_graphs(
    work: unit_of_work.UnitOfWork, rows: Sequence[int], unfinished_sweeps: set[int]
) -> Iterator[tuple[int, str]]:
    """Yield the jobs of graphs with a node that is not submitted or has not ended."""
    for graph in work.prune.graphs_of(rows):
        stored = work.graphs.get(graph)
        nodes = work.graphs.nodes(graph)
        first = [node.job_row for node in nodes if node.job_row is not None]
        tokens = {job.token for job in work.jobs.by_row(first).values()}
        of_nodes = work.jobs.of_submissions(tokens)
        last = work.recovery.last_in_chain([job.row for job in of_nodes])
        newest = work.jobs.by_row(set(last.values())).values()
        sweeps = {node.sweep_row for node in nodes if node.sweep_row is not None}
        is_open = stored is not None and stored.state == "open"
        may_submit = is_open and any(not node.is_bound and not node.given_up for node in nodes)
        if may_submit or any(not job.is_over for job in newest) or sweeps & unfinished_sweeps:
            of_sweeps = [job.row for sweep in sweeps for job in work.sweeps.jobs(sweep)]
            for row in [*(job.row for job in of_nodes), *of_sweeps]:
                yield row, "jobs of a graph that is not finished"


def _in_baselines(work: unit_of_work.UnitOfWork) -> Iterator[tuple[int, str]]:
    """Yield the jobs that the newest baseline of each name was measured from."""
    newest = {baseline.name: baseline for baseline in reversed(work.baselines.newest())}
    for baseline in newest.values():
        reason = f"baseline {baseline.name} names them as its source"
        of: list[jobs.Job] = []
        if match := _SWEEP.fullmatch(baseline.source):
            of = work.sweeps.jobs(int(match["row"]))
        elif match := _JOBS.fullmatch(baseline.source):
            names = match["names"].split(", ")
            rows = [row for name in names if (row := naming.row_named(name)) is not None]
            ids = [name for name in names if not name.startswith("@")]
            of = work.jobs.find(jobs.JobQuery(job_ids=ids, limit=None)) if ids else []
            of += work.jobs.by_row(rows).values()
        # Slurm reuses job IDs; a later job was not measured.
        yield from ((job.row, reason) for job in of if job.created_at <= baseline.created_at)


def _in_schedules(work: unit_of_work.UnitOfWork) -> Iterator[tuple[int, str]]:
    """Yield the jobs of triggers that the regression check of a schedule will read."""
    for trigger, name in regression_check.needed(work):
        for job in submit_later.jobs_of(work, trigger):
            yield job.row, f"schedule {name} compares its next runs with them"


def _named(
    work: unit_of_work.UnitOfWork, tokens: Collection[str], sweeps: Collection[int]
) -> set[str]:
    """Return those of the tokens, which are part of folder names, that a later start may need."""
    if not tokens:
        return set()
    expression = re.compile(rf"\b{work.settings.installation_id()}[a-z0-9]{{8}}\b")
    of_groups = work.prune.group_texts(sweeps, work.graphs.unfinished())
    texts = itertools.chain(work.prune.live_texts(), of_groups)
    return {token for text in texts for token in expression.findall(text)} & set(tokens)
