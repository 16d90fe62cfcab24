"""The jobs that a command line names."""

from __future__ import annotations

import typing
from collections.abc import Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import options

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import contexts


def jobs_of(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the job that `reference` names, or the tasks of the array in their order.

    Raises NotFoundError, or ConflictError with the list if several live jobs match.
    """
    from orchestrator.controller.session import queries

    matching = queries.find(context, reference)
    if not matching:
        raise errors.NotFoundError(
            f"job {reference!r} not found: `orchestrator status --all` lists all jobs"
        )
    live = [job for job in matching if not job.ended]
    if len({job.token for job in live}) > 1:
        names = "\n".join(f"  {job.job_id or '-'}  @{job.row}  {job.state}" for job in live)
        raise errors.ConflictError(f"{len(live)} live jobs are named {reference}:\n{names}")
    token = (live or matching)[0].token
    tasks = [job for job in matching if job.token == token]
    return sorted(tasks, key=lambda job: job.array_task_id or 0)


def jobs_and_sweeps(
    context: contexts.Context, references: Sequence[str], sweeps: Sequence[str]
) -> list[jobs.Job]:
    """Return the named jobs and all jobs of the sweeps, each once. UsageError if none is named."""
    if not references and not sweeps:
        raise click.UsageError("name jobs, or a sweep with --sweep")
    named = [job for reference in references for job in jobs_of(context, reference)]
    for sweep in sweeps:
        named += _jobs_of_sweep(context, sweep, all_points=False)
    return list({job.row: job for job in named}.values())


def selected_jobs(
    context: contexts.Context, selection: options.Selection, *, with_ended: bool = False
) -> list[jobs.Job]:
    """Return the selected jobs, each once. UsageError if nothing is selected.

    with_ended: a sweep selects all its points; otherwise only its live jobs.
    """
    from orchestrator.controller.session import queries

    chosen = [job for reference in selection.references for job in jobs_of(context, reference)]
    if selection.names or selection.labels:
        live = queries.list_jobs(
            context,
            jobs.JobQuery(names=selection.names, labels=selection.labels, live=True, limit=None),
        )[0]
        if not live and not chosen:
            words = ", ".join([*selection.names, *selection.labels])
            raise errors.NotFoundError(f"no live job has the name or label {words}")
        chosen += live
    elif not selection.references and not selection.sweeps:
        raise click.UsageError("name jobs, or select them with --name, --label or --sweep")
    for sweep in selection.sweeps:
        points = _jobs_of_sweep(context, sweep, all_points=with_ended)
        chosen += [job for job in points if with_ended or not job.ended]
    if selection.sweeps and not chosen and not with_ended:
        raise errors.NotFoundError(f"no job of {', '.join(selection.sweeps)} is live")
    return list({job.row: job for job in chosen}.values())


def _jobs_of_sweep(
    context: contexts.Context, reference: str, *, all_points: bool
) -> list[jobs.Job]:
    """Return the newest job of each point. ConflictError if `all_points` and some have none."""
    from orchestrator.controller.sweeps import queries

    sweep = queries.find(context, reference)
    points = queries.points(context, sweep)
    unsubmitted = sum(point.job is None for point in points)
    if all_points and unsubmitted and sweep.state == "open":
        raise errors.ConflictError(
            f"{unsubmitted} of {len(points)} points of {sweep.name} are not submitted: "
            f"`orchestrator sweep resume @{sweep.row}` submits them"
        )
    return [point.job for point in points if point.job is not None]
