"""The configuration and Context of a command, and the progress of slow activities."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from orchestrator import config, errors
from orchestrator.cli import output

if typing.TYPE_CHECKING:
    from orchestrator.controller.refresh import freshness
    from orchestrator.controller.session import contexts
    from orchestrator.processes import process
    from orchestrator.slurm.client import Client

#: Notes of the configuration that were printed, in the click context's meta.
_PRINTED_NOTES = "orchestrator.notes"
#: The first progress message is printed after this time.
FIRST_SECONDS = 1.0
#: It is repeated at this interval. sbatch retries for two minutes while slurmctld is down.
REPEAT_SECONDS = 30.0


def configuration_of(
    ctx: click.Context,
    *,
    with_project: bool = True,
    quiet: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> config.Configuration:
    """Return the configuration. Raises ConfigurationError with all its problems.

    Its notes are printed once for each command, unless `quiet`.
    """
    configuration = config.load(environ, current_folder(), ctx.obj or {}, with_project=with_project)
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
        from orchestrator.controller.resubmission import deferred_jobs

        plan = deferred_jobs.make_plan(context, floor_seconds=0 if refresh else None)
    return deferred_jobs.refresh_or_warn(context, plan)
