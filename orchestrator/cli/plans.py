"""orchestrator plan and apply."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from orchestrator import errors, plans
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.planning import approval
from orchestrator.controller.session import contexts
from orchestrator.rows import row_values
from orchestrator.rows.contract import service as contract
from orchestrator.toml import values

COLUMNS = (
    Column("token"),
    Column("jobs"),
    Column("gpu_hours"),
    Column("actions", "text"),
    Column("refusal", "text"),
)


@commands.command(
    "plan",
    "orchestrator plan submit train.toml --set args.lr=0.2",
    "orchestrator plan --json --max-gpu-hours 100 sweep submit examples/scaling.toml",
    "orchestrator plan cancel 123 124",
    changes="nothing",
    prints=("plans",),
    context_settings={"allow_interspersed_args": False},
)
def plan(
    ctx: click.Context,
    max_gpu_hours: float | None = options.max_gpu_hours,
    expires: int = option(
        "--expires", "How long the token is valid: 30m, 1h.", value_types.duration, default="1h"
    ),
    form: str | None = options.optional_form,
    words: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND..."
    ),
) -> None:
    """Show what a command would do, and print a token for `orchestrator apply`.

    COMMAND is a command that submits, cancels or changes jobs, with its options: submit, resubmit,
    cancel, hold, release, requeue, and those of sweep and graph. Everything is checked and
    rendered, but nothing is submitted or changed. GPU-hours are those that the jobs may use until
    their time limits, each time they start: rules of [retry] and requeues count.
    """
    if words[0].startswith("-"):
        raise click.UsageError(
            f"{words[0]} is not a command; options of `orchestrator` precede `plan`"
        )
    argv = [*session.preceding_options(ctx), *words]
    approved = session.Approval(make=lambda context: approval.stop, is_plan=True)
    try:
        # A script reads the plan from stdout.
        with contextlib.redirect_stdout(sys.stderr):
            _run(ctx, argv, approved)
    except approval.Planned as planned:
        effect = planned.effect
    else:
        raise errors.ConflictError(f"`{' '.join(words)}` has nothing to do, so there is no plan")
    context = session.open_context(ctx)
    limits = approval.budget(context.configuration.agents, max_gpu_hours)
    stored, refusal = None, ""
    try:
        stored = approval.store(context, effect, argv, limits=limits, expires_seconds=expires)
    except approval.OverBudgetError as error:
        refusal = str(error)
    if form is None:
        _print(effect, stored, expires)
    else:
        row = row_values.row_of(
            contract.PlanRow,
            effect,
            token=stored and stored.token,
            command=argv,
            expires_at=stored and stored.expires_at,
            refusal=refusal or None,
        )
        output.print_rows("plans", [row], COLUMNS, form)
    if refusal:
        raise errors.ConflictError(refusal)


def _print(effect: plans.Effect, stored: plans.Plan | None, expires_seconds: int) -> None:
    for action in effect.actions:
        click.echo(action)
    click.echo(f"{output.count(effect.jobs, 'job')}, {plans.most_hours(effect.gpu_hours)}")
    if stored is not None:
        click.echo(f"To do it within {values.elapsed(expires_seconds)}:")
        click.echo(f"  orchestrator apply {stored.token}")


@commands.command(
    "apply",
    "orchestrator apply 0f343b0931126a20",
    changes="other",
    prints=("jobs", "sweep_states", "submissions", "graph_nodes"),
)
def apply(
    ctx: click.Context, token: str = argument(), form: str | None = options.optional_form
) -> Any:
    """Do what a plan says, once.

    The command of the plan runs in the folder in which it was planned. It is refused if the plan
    was applied before, has expired, or if what it follows from has changed: the spec, the code of
    the job, the configuration, or the states of the jobs. It prints what the command prints.
    """
    planned = approval.find(session.open_context(ctx), token)
    applications: list[approval.Application] = []

    def make(context: contexts.Context) -> Any:
        applications.append(approval.Application(context=context, plan=planned))
        return applications[-1].approve

    try:
        os.chdir(planned.folder)
    except OSError as exc:
        raise errors.ConflictError(
            f"{planned.folder}, where it was planned, cannot be used: {exc.strerror}. "
            "Nothing was done."
        ) from exc
    argv = list(planned.argv)
    if form is not None:
        at = argv.index("--") if "--" in argv else len(argv)
        argv[at:at] = ["--format", form]
    code = _run(ctx, argv, session.Approval(make=make, is_plan=False))
    if not any(application.is_approved for application in applications):
        raise errors.ConflictError("there is nothing left to do. Nothing was done.")
    for application in applications:
        application.finish()
    return code


def _run(ctx: click.Context, argv: Sequence[str], approved: session.Approval) -> Any:
    """Run another command of this program, and return what it returns."""
    root = ctx.find_root()
    # It is stored with jobs, as the command that submitted them.
    sys.argv[1:] = argv
    caller = session.caller_of(ctx)
    inner = root.command.make_context(root.info_name, list(argv), obj=caller)
    session.set_approval(inner, approved)
    with inner:
        return inner.command.invoke(inner)
