"""Submit a sweep's points.

A point gets its job in the transaction that stores the intent, and only if the point still has the
job (or none) that this process read. So no point is submitted twice, whatever is killed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, sweeps
from orchestrator.controller.planning import agreement
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, provenance, submit
from orchestrator.controller.sweeps import plan, queries
from orchestrator.slurm import deferral

#: Is called with the jobs of each submission.
Report = Callable[[Sequence[jobs.Job]], None]
#: Runs in the transaction that stores a sweep.
WithSweep = Callable[[unit_of_work.UnitOfWork, sweeps.StoredSweep], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """Points that were submitted, or are deferred by a submit limit."""

    sweep: sweeps.StoredSweep
    #: one of each point
    jobs: Sequence[jobs.Job] = ()

    @property
    def deferred(self) -> int:
        return sum(job.is_deferred for job in self.jobs)

    @property
    def submitted(self) -> int:
        return len(self.jobs) - self.deferred


class BaselineError(errors.ConflictError):
    """Points of the baseline failed or were not submitted."""


def submit_new(
    prepared: plan.Prepared,
    sweep: sweeps.Sweep,
    source: str,
    *,
    with_sweep: WithSweep | None = None,
    report: Report | None = None,
) -> Submitted:
    """Store a sweep, and submit its points; ConflictError if one of its name is not finished."""
    context = prepared.context
    agreement.on_points(sweep.name, prepared)
    fields = clusters.current_fields(context)
    with context.store.writing(durable=True) as work:
        for other in work.sweeps.newest(name=sweep.name):
            groups = work.sweeps.groups([other.row]).get(other.row, [])
            if unfinished := queries.unfinished(other, groups):
                raise errors.ConflictError(
                    f"sweep {sweep.name} (@{other.row}) exists and {unfinished} of its points have "
                    f"not ended: `orchestrator sweep status @{other.row}` shows it, `orchestrator "
                    f"sweep add @{other.row} FILE` adds points to it, and --name gives this sweep "
                    "another name"
                )
        planned = dataclasses.replace(sweep, points=tuple(prepared.points))
        stored = work.sweeps.add(planned, source=source, **fields)
        if with_sweep is not None:
            with_sweep(work, stored)
    return submit_prepared(prepared, stored, report=report)


def submit_prepared(
    prepared: plan.Prepared, sweep: sweeps.StoredSweep, *, report: Report | None = None
) -> Submitted:
    """Submit prepared points.

    Submissions beyond a submit limit are deferred, as with `submit --queue`. Errors of
    submit.send say how to resume the sweep.
    """
    context = prepared.context
    git = _cached(provenance.git_in(Path(sweep.folder)))
    submitted: list[jobs.Job] = []
    refused: list[tuple[jobs.Job, int]] = []
    for ready in prepared.ready:
        count = len(ready.submission.points)
        spec = ready.submission.spec
        behind = next(
            (job for job, tasks in refused if deferral.keeps_out(job, tasks, spec, count)), None
        )
        try:
            if behind is None:
                behind = _behind_baseline(context, sweep, ready, refused)
            tasks = _submit_one(context, sweep, ready, behind, git)
        except errors.OrchestratorError as exc:
            exc.args = (f"{exc}\n{_how_to_resume(context, sweep)}",)
            raise
        except KeyboardInterrupt:
            context.reporter.warn(_how_to_resume(context, sweep))
            raise
        if tasks[0].is_deferred and behind is None:
            refused.append((tasks[0], count))
        if report is not None:
            report(tasks)
        context.guard.check()
        submitted += tasks
    return Submitted(sweep=sweep, jobs=submitted)


def submit_remaining(
    context: contexts.Context, sweep: sweeps.StoredSweep, argv: Sequence[str]
) -> Submitted | None:
    """Submit the points of an open sweep that have no job yet; None if each has one."""
    remaining = [point for point in queries.points(context, sweep) if point.job is None]
    if sweep.state != "open" or not remaining:
        return None
    points = sweeps.points_of(remaining)
    prepared = plan.prepare(context, sweep, points, source=sweep.source, argv=argv)
    return submit_prepared(prepared, sweep)


def _behind_baseline(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    ready: plan.Ready,
    refused: Sequence[tuple[jobs.Job, int]],
) -> jobs.Job | None:
    """Return the deferred job of the baseline that this submission has to wait for.

    BaselineError if the baseline needs the user.
    """
    points = ready.submission.points
    with context.store.reading() as work:
        before = queries.prerequisites(work, sweep.row, points[0].shape.key, len(points))
    if before.unsent and refused:
        return refused[0][0]
    if before.unsent or before.failed:
        raise BaselineError(
            f"{before.unsent + before.failed} points of the baseline of {sweep.name} were not "
            f"submitted or failed: `orchestrator sweep rerun @{sweep.row}` submits them first"
        )
    return None


def _submit_one(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    ready: plan.Ready,
    behind: jobs.Job | None,
    git: provenance.Git,
) -> list[jobs.Job]:
    points = ready.submission.points

    def assign_jobs(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        is_open = queries.is_open(work, sweep.row)
        if not is_open or not work.sweeps.assign_jobs(
            sweep.row, points, [job.row for job in added]
        ):
            raise errors.ConflictError(
                f"another process is submitting or cancelling points of {sweep.name}; this one "
                f"left them to it: `orchestrator sweep status @{sweep.row}` shows them"
            )
        if again := [point.job_row for point in points if point.job_row is not None]:
            work.recovery.withdraw(again, "its point was submitted again")

    intent = intents.Intent(
        spec=ready.submission.spec,
        script=ready.script.text,
        provenance=provenance.collect(
            context,
            ready.request,
            template=(ready.script.template, ready.script.template_hash),
            folder=Path(sweep.folder),
            git=git,
        ),
        cluster=sweep.cluster,
        runs_dir=context.configuration.runs_dir,
        queue=not context.is_local,
        behind=behind,
        sweep=sweep.name,
        in_transaction=assign_jobs,
    )
    stored = intents.store(context, intent)
    if not stored.job.is_deferred:
        submit.send(context, stored)
    return submit.tasks_of(context, stored.job)


def _how_to_resume(context: contexts.Context, sweep: sweeps.StoredSweep) -> str:
    with context.store.reading() as work:
        groups = work.sweeps.groups([sweep.row])[sweep.row]
    unsubmitted = (None, jobs.JobState.NOT_SUBMITTED)
    count = sum(
        group.points for group in groups if group.state in unsubmitted and not group.is_deferred
    )
    return (
        f"{count} points of {sweep.name} are not submitted: `orchestrator sweep resume "
        f"@{sweep.row}` submits them, each point once"
    )


def _cached(git: provenance.Git) -> provenance.Git:
    """Return git with cached results: all points record one state of the tree."""
    run = functools.cache(git)
    return lambda arguments: run(tuple(arguments))
