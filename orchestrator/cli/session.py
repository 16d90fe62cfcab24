"""The configuration and Context of a command, and the jobs that its arguments name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import config, errors, jobs
from orchestrator.cli import options, output

if typing.TYPE_CHECKING:
    from orchestrator.controller.refresh import freshness
    from orchestrator.controller.session import contexts
    from orchestrator.slurm import process
    from orchestrator.slurm.client import Client

#: Notes of the configuration that were printed, in the click context's meta.
_PRINTED_NOTES = "orchestrator.notes"
#: A progress message is printed after this time,
FIRST_SECONDS = 1.0
#: and again after each of these. sbatch retries for two minutes while slurmctld is down.
REPEAT_SECONDS = 30.0


def configuration_of(
    ctx: click.Context, *, with_project: bool = True, quiet: bool = False
) -> config.Configuration:
    """Return the configuration. Raises ConfigurationError with all its problems.

    Its notes are printed once for each command, unless `quiet`.
    """
    configuration = config.load(
        os.environ, current_folder(), ctx.obj or {}, with_project=with_project
    )
    printed = ctx.meta.setdefault(_PRINTED_NOTES, set())
    for note in configuration.notes:
        if note not in printed and not quiet:
            printed.add(note)
            output.note(note)
    return configuration


def current_folder() -> Path:
    """Return the current folder. Raises OrchestratorError if it was removed."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise errors.OrchestratorError(
            f"the current folder cannot be used ({exc.strerror}); cd to another one"
        ) from exc


def open_context(ctx: click.Context, *, quiet: bool = False) -> contexts.Context:
    """Return the Context; it is closed with `ctx`. `quiet`: without progress messages."""
    from orchestrator.controller.session import contexts, stores

    configuration = configuration_of(ctx)
    store = stores.of(configuration)
    ctx.call_on_close(store.close)
    ctx.with_resource(store.explained())
    return contexts.Context(
        configuration=configuration,
        store=store,
        slurm_client=functools.partial(client, quiet=quiet),
        environ=os.environ,
        folder=current_folder(),
        reporter=contexts.Reporter(
            write=lambda level, text: output.note(text),
            activity=contextlib.nullcontext if quiet else progress,
        ).once(),
    )


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a command with its Context as the first argument."""

    @click.pass_context
    @functools.wraps(function)
    def command(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
        return function(open_context(ctx), *args, **kwargs)

    return command


def client(*, quiet: bool = False) -> Client:
    """Return Slurm's commands; unless `quiet`, a slow command prints a progress message."""
    from orchestrator.slurm import variables
    from orchestrator.slurm.client import Client

    plain = Client(environ=variables.for_queries(os.environ))
    if quiet:
        return plain

    def run(
        argv: Sequence[str], timeout_seconds: float, environ: Mapping[str, str], /
    ) -> process.Result:
        with progress(f"Asking Slurm ({argv[0]})"):
            return plain.run(argv, timeout_seconds, environ)

    return dataclasses.replace(plain, run=run)


@contextlib.contextmanager
def progress(activity: str) -> Iterator[None]:
    """Print the activity, such as "Asking Slurm (squeue)", to stderr while it takes long.

    By a signal instead of a thread: a process with threads should not fork, and sbatch is started
    in here. The timer is not inherited (man 2 setitimer).
    """
    begun = time.monotonic()

    def report(*_: object) -> None:
        seconds = time.monotonic() - begun
        since = "" if seconds < REPEAT_SECONDS else f" {seconds:.0f} s"
        # An error here, such as a closed stderr, would end the activity.
        with contextlib.suppress(OSError, RuntimeError):
            output.note(f"{activity} ...{since}")

    handler = signal.signal(signal.SIGALRM, report)
    timer = signal.setitimer(signal.ITIMER_REAL, FIRST_SECONDS, REPEAT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def refresh(context: contexts.Context, refresh: bool | None) -> freshness.Freshness | None:
    """Ask Slurm about live jobs: now (True), never (False), or if the stored state is too old.

    Returns None if Slurm need not be asked.
    """
    from orchestrator.controller.refresh import freshness

    if refresh is False:
        return None
    with context.store.reading():
        if refresh is None and freshness.nothing_is_due(context):
            return None
        # It imports everything that talks to Slurm.
        from orchestrator.controller.resubmission import resend

        plan = resend.make_plan(context, floor_seconds=0 if refresh else None)
    return resend.refresh_or_warn(context, plan)


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
