"""orchestrator sweep list."""

from __future__ import annotations

import click

from orchestrator.cli import output, session, sweep_views
from orchestrator.controller.sweeps import queries


@click.command(short_help="List the sweeps, and how far they are.")
@output.limit_option
@output.format_option
@click.pass_context
def command(ctx: click.Context, limit: int, format_: str | None, as_json: bool) -> None:
    """List the sweeps, newest first, and how many points are where.

    MISSING are those cancelled or lost, UNSUBMITTED those that nothing was submitted of: `sweep
    rerun --failed` submits again what FAILED counts, `--missing` the other two.

    Slurm is not asked: `sweep status NAME` and `status` do that.

    \b
    Example:
      orchestrator sweep list
    """
    context = session.open_context(ctx)
    rows = [sweep_views.sweep_row(one) for one in queries.newest(context, limit)]
    chosen = output.chosen(format_, as_json)
    if not output.is_json(chosen):
        for row in rows:
            row["row"] = f"@{row['row']}"
    output.items("sweeps", rows, sweep_views.SWEEP_COLUMNS, chosen)
