"""orchestrator doctor."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import output, session, settings
from orchestrator.controller import doctor


@click.command(short_help="Check what orchestrator needs on this machine.")
@output.format_option
@click.pass_context
def command(ctx: click.Context, format_: str | None, as_json: bool) -> None:
    """Check what orchestrator needs on this machine; a cure for each thing that is wrong.

    Exit code 1 when something is bad; warnings are no failure.

    \b
    Example:
      orchestrator doctor
    """
    configuration = settings.configuration_of(ctx)
    checks = list(doctor.examine(configuration, session.client()))
    rows = [
        {"check": one.name, "outcome": one.outcome, "found": one.found, "cure": one.cure}
        for one in checks
    ]
    chosen = output.chosen(format_, as_json)
    output.items("checks", rows, ["check", "outcome", "found", "cure"], chosen)
    bad = sum(one.outcome == doctor.BAD for one in checks)
    if bad:
        raise errors.OrchestratorError(f"{bad} of {len(checks)} checks are bad")
