"""orchestrator schedule run."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import output, schedule_views, session
from orchestrator.controller.resubmission import resend
from orchestrator.controller.schedules import management


@click.command(short_help="Submit it once, now.")
@click.argument("name", metavar="NAME")
@output.format_option
@click.pass_context
def command(ctx: click.Context, name: str, format_: str | None, as_json: bool) -> None:
    """Submit what a schedule is of once, now, also while it is paused.

    Its overlap rule holds: with skip the exit code is 6 while an earlier one has not ended. What
    cannot be submitted at this moment is left to the controller.

    \b
    Example:
      orchestrator schedule run nightly
    """
    context = session.open_context(ctx)
    # Whether an earlier one has ended is for Slurm to say.
    resend.refresh_or_warn(context)
    firing, told = management.run_now(context, name)
    for sentence in told:
        output.say(sentence)
    stored = management.find(context, name)
    chosen = output.chosen(format_, as_json)
    rows = schedule_views.firing_rows([firing], stored.tz, chosen)
    output.items("firings", rows, schedule_views.FIRING_COLUMNS, chosen)
    if firing.state == "failed":
        raise errors.OrchestratorError(f"nothing was submitted: {firing.reason}")
