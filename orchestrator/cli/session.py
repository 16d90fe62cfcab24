"""The configuration and Context of a command, and the progress of slow activities."""

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

import click

from orchestrator import config, errors
from orchestrator.cli import output

if typing.TYPE_CHECKING:
    from orchestrator import plans
    from orchestrator.controller.session import callers, contexts
    from orchestrator.processes import process
    from orchestrator.slurm.client import Client

#: Notes of the configuration that were printed, in the click context's meta.
_PRINTED_NOTES = "orchestrator.notes"
#: The Approval of a command that is planned or applied, in the click context's meta.
_APPROVAL = "orchestrator.approval"
#: Whether nothing may be changed, in the click context's meta.
_READ_ONLY = "orchestrator.read_only"
#: By what a user acts, for the history of jobs; set by programs that start commands.
THROUGH_VARIABLE = "ORCHESTRATOR_THROUGH"
#: The computer that sent the command, in the click context's meta.
_CALLER = "orchestrator.caller"
#: The first progress message is printed after this time.
FIRST_SECONDS = 1.0
#: It is repeated at this interval. sbatch retries for two minutes while slurmctld is down.
REPEAT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Approval:
    """What a command that changes jobs needs before it acts."""

    #: returns Guard.approve for the command's context
    make: Callable[[contexts.Context], Callable[[Callable[[], plans.Effect]], None]]
    #: the command is only planned: nothing is changed
    is_plan: bool


def set_approval(ctx: click.Context, approval: Approval) -> None:
    ctx.meta[_APPROVAL] = approval


def approval_of(ctx: click.Context) -> Approval | None:
    approval: Approval | None = ctx.meta.get(_APPROVAL)
    return approval


def set_read_only(ctx: click.Context, is_read_only: bool) -> None:
    """Set whether nothing may be changed: --read-only, or ORCHESTRATOR_READ_ONLY."""
    ctx.meta[_READ_ONLY] = is_read_only


def is_read_only(ctx: click.Context) -> bool:
    approval = approval_of(ctx)
    return bool(ctx.meta.get(_READ_ONLY)) or (approval is not None and approval.is_plan)


def preceding_options(ctx: click.Context) -> list[str]:
    """Return the options that precede the command, other than --read-only."""
    return [
        word
        for key, value in (ctx.obj or {}).items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]


def refuse_if_read_only(ctx: click.Context) -> None:
    """Raise ConflictError if nothing may be changed."""
    if is_read_only(ctx):
        raise errors.ConflictError(
            f"`{ctx.command_path}` would change something, and --read-only or "
            "ORCHESTRATOR_READ_ONLY forbids it. Nothing was done."
        )


def set_caller(ctx: click.Context, caller: callers.Caller | None) -> None:
    """Set which computer sent the command; None: it was called here."""
    ctx.meta[_CALLER] = caller


def caller_of(ctx: click.Context) -> callers.Caller | None:
    """Return which computer sent the command; None: it was called here."""
    caller: callers.Caller | None = ctx.meta.get(_CALLER)
    return caller


def is_confined(ctx: click.Context) -> bool:
    """Return whether the command is another computer's that may only look.

    Its key in authorized_keys may be limited to that: it must not choose what is written where.
    """
    return caller_of(ctx) is not None and is_read_only(ctx)


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


def open_context(
    ctx: click.Context, *, quiet: bool = False, with_project: bool = True
) -> contexts.Context:
    """Return the Context; it is closed with `ctx`.

    quiet: without progress messages. with_project: False ignores the project's file.
    """
    from orchestrator.controller.session import contexts, stores

    configuration = configuration_of(ctx, with_project=with_project)
    caller = caller_of(ctx)
    store = stores.of(configuration)
    ctx.call_on_close(store.close)
    ctx.with_resource(store.explained())
    context = contexts.Context(
        configuration=configuration,
        store=store,
        slurm_client=functools.partial(client, quiet=quiet),
        environ=os.environ,
        folder=current_folder(),
        is_read_only=is_read_only(ctx),
        through=os.environ.get(THROUGH_VARIABLE, "") if caller is None else caller.through,
        carried=None if caller is None else caller.carried,
        reporter=contexts.Reporter(
            write=lambda level, text: output.note(text),
            activity=contextlib.nullcontext if quiet else progress,
        ).once(),
    )
    if (approval := approval_of(ctx)) is None:
        return context
    guard = contexts.Guard(approve=approval.make(context))
    return dataclasses.replace(context, guard=guard)


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
