"""orchestrator track."""

from __future__ import annotations

import click

from orchestrator import errors, jobs
from orchestrator.cli import session
from orchestrator.controller.refresh import track


@click.command(short_help="Follow a job that was submitted by hand.")
@click.argument("job_ids", nargs=-1, required=True, metavar="JOBID...")
@click.option("--name", help="What to call it here; default: its name in Slurm.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label for own use.")
@click.option(
    "--pattern", "patterns", multiple=True, help="Named pattern that finds numbers in its log."
)
@click.option("--log", metavar="PATH", help="Its log, where Slurm does not know it any more.")
@click.pass_context
def command(
    ctx: click.Context,
    job_ids: tuple[str, ...],
    name: str | None,
    labels: tuple[str, ...],
    patterns: tuple[str, ...],
    log: str | None,
) -> None:
    """Follow a job that was submitted by hand: its state, its log, its numbers.

    From now on it is a job like those that were submitted here: status, show, logs, metrics, wait,
    cancel, hold, release and requeue take it. An array's ID means all its tasks. A job that has
    ended can be tracked while Slurm or its accounting knows it.

    \b
    Examples:
      orchestrator track 123
      orchestrator track 123 --name baseline --label team=vision
    """
    if name is not None and (misfit := track.name_misfit(name)):
        raise click.UsageError(f"--name {misfit}")
    if odd := [label for label in labels if "=" not in label]:
        raise click.UsageError(f"write --label KEY=VALUE (got {odd[0]})")
    context = session.open_context(ctx)
    wanted = track.Wanted(name=name, labels=labels, patterns=patterns, log=log)
    troubles: list[errors.NotFoundError | errors.ConflictError] = []
    for job_id in job_ids:
        try:
            tracked = track.track(context, job_id, wanted)
        except (errors.NotFoundError, errors.ConflictError) as trouble:
            troubles.append(trouble)
            continue
        click.echo(_told(job_id, tracked))
        for job in tracked.jobs:
            if job.stdout_path is None and job.state is not jobs.JobState.PENDING:
                context.reporter.info(
                    f"the log of {job.job_id} is not known; `--log PATH` names it"
                )
                break
    if troubles:
        raise type(troubles[0])("\n".join(map(str, troubles)))


def _told(job_id: str, tracked: track.Tracked) -> str:
    first, last = tracked.jobs[0], tracked.jobs[-1]
    rows = f"@{first.row}" if first is last else f"@{first.row} to @{last.row}"
    if tracked.already:
        return f"{job_id} is {rows} already ({first.name})"
    if first is last:
        return f"Tracking {job_id} ({rows}, {first.name}): {first.state}"
    return f"Tracking {job_id} ({rows}, {first.name}): {len(tracked.jobs)} tasks"
