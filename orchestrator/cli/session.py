"""The edge: from the command line's words to the context that the verbs work with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import completing, output, settings
from orchestrator.controller.session import contexts, queries, stores
from orchestrator.slurm import variables
from orchestrator.slurm.client import Client


def client() -> Client:
    """Return Slurm as this user sees it; it says which command it waits for."""
    from orchestrator.cli import progress

    return progress.told(_silent_client(), output.say)


def _silent_client() -> Client:
    return Client(environ=variables.for_queries(os.environ))


def open_context(ctx: click.Context, *, talks: bool = True) -> contexts.Context:
    """Return the context, with the database opened (and upgraded when it is older).

    `talks`: it says which command it waits for.
    """
    configuration = settings.configuration_of(ctx)
    store = stores.of(configuration)
    ctx.call_on_close(store.close)
    ctx.with_resource(store.explained())
    return contexts.Context(
        configuration=configuration,
        store=store,
        slurm=client() if talks else _silent_client(),
        environ=os.environ,
        folder=settings.folder(),
        reporter=contexts.Reporter(
            write=lambda level, text: output.say(text),
            activity=_waiting if talks else contextlib.nullcontext,
        ).once(),
    )


def _waiting(doing: str) -> contextlib.AbstractContextManager[None]:
    from orchestrator.cli import progress

    return progress.waiting(doing, output.say)


def refresh_options(command: Callable[..., object]) -> Callable[..., object]:
    """Add --refresh/--no-refresh."""
    return click.option(
        "--refresh/--no-refresh",
        "refresh_",
        default=None,
        help="Ask Slurm now, or not at all; default: when the last answer is older than the floor.",
    )(command)


def selection(command: Callable[..., object]) -> Callable[..., object]:
    """Add [JOB...], --name, --label and --sweep, for chosen_jobs()."""
    for option in (
        click.option(
            "--sweep", "sweeps", multiple=True, metavar="SWEEP", help="All jobs of this sweep."
        ),
        click.option(
            "--label", "labels", multiple=True, metavar="KEY=VALUE", help="All live ones with it."
        ),
        click.option("--name", "names", multiple=True, help="All live jobs of this name."),
        click.argument(
            "references",
            nargs=-1,
            metavar="[JOB...]",
            shell_complete=completing.job_references,
        ),
    ):
        command = option(command)
    return command


def chosen_jobs(
    context: contexts.Context,
    references: Sequence[str],
    names: Sequence[str],
    labels: Sequence[str],
    sweeps: Sequence[str],
    *,
    what: str,
    ended: bool = False,
) -> list[jobs.Job]:
    """Return the jobs that were named, each once; `what` is to be done with them.

    `ended`: of sweeps those too that have ended, all their points. Raises UsageError when none is
    named, and what jobs_of() raises.
    """
    wanted = [job for reference in references for job in jobs_of(context, reference)]
    if names or labels:
        live = jobs.JobQuery(names=tuple(names), labels=tuple(labels), live=True, limit=None)
        found = queries.list_jobs(context, live)[0]
        if not found and not wanted:
            told = ", ".join([*names, *labels])
            raise errors.NotFoundError(f"no live job is named or labelled {told}")
        wanted += found
    elif not references and not sweeps:
        raise click.UsageError(f"name jobs {what}, or --name, --label or --sweep")
    for reference in sweeps:
        found = _of_sweep(context, reference, whole=ended)
        wanted += [job for job in found if ended or not job.ended]
    return list({job.row: job for job in wanted}.values())


def jobs_and_sweeps(
    context: contexts.Context, references: Sequence[str], sweeps: Sequence[str]
) -> list[jobs.Job]:
    """Return the jobs that were named and all jobs of the sweeps, each once, in that order."""
    wanted = [job for reference in references for job in jobs_of(context, reference)]
    for reference in sweeps:
        wanted += _of_sweep(context, reference, whole=False)
    return list({job.row: job for job in wanted}.values())


def _of_sweep(context: contexts.Context, reference: str, *, whole: bool) -> list[jobs.Job]:
    """Return the newest job of each point; ConflictError where `whole` and some have none."""
    from orchestrator.controller.sweeps import queries

    sweep = queries.find(context, reference)
    pairs = queries.points(context, sweep)
    left = sum(pair.job is None for pair in pairs)
    if whole and left and sweep.state == "open":
        raise errors.ConflictError(
            f"{left} of {len(pairs)} points of {sweep.name} are not submitted, and would be waited "
            f"for in vain: `orchestrator sweep resume @{sweep.row}` submits them"
        )
    return [pair.job for pair in pairs if pair.job is not None]


def jobs_of(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the job that `reference` means, or the tasks of the array in their order.

    Raises NotFoundError when there is none, ConflictError with the list when several live ones fit.
    """
    found = queries.find(context, reference)
    if not found:
        raise errors.NotFoundError(
            f"no job {reference!r} here; `orchestrator status --all` lists what is known"
        )
    live = [job for job in found if not job.ended]
    if len({job.token for job in live}) > 1:
        names = "\n".join(f"  {job.job_id or '-'}  @{job.row}  {job.state}" for job in live)
        raise errors.ConflictError(f"{len(live)} live jobs are named {reference}:\n{names}")
    token = (live or found)[0].token
    mine = [job for job in found if job.token == token]
    return sorted(mine, key=lambda job: job.array_task_id or 0)
