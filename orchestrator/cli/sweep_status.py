"""orchestrator sweep status."""

from __future__ import annotations

import click

from orchestrator.cli import output, session, sweep_views
from orchestrator.controller.refresh import freshness
from orchestrator.controller.sweeps import queries


@click.command(short_help="Show what the points of a sweep do.")
@click.argument("sweep", metavar="SWEEP")
@click.option("--points", is_flag=True, help="A row for each point.")
@session.refresh_options
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    sweep: str,
    points: bool,
    refresh_: bool | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """Show how many points of a sweep are in which state, and why.

    SWEEP is its name, of several the newest, or its number `@3`.

    \b
    Examples:
      orchestrator sweep status digits-scaling
      orchestrator sweep status digits-scaling --points --format csv
    """
    context = session.open_context(ctx)
    found = queries.find(context, sweep)
    if refresh_ or (refresh_ is not False and not freshness.nothing_is_due(context)):
        # What asks Slurm takes as long to load as all the rest.
        from orchestrator.controller.resubmission import resend

        resend.refresh_or_warn(context, floor_seconds=0 if refresh_ else None)
    if points:
        pairs = queries.points(context, found)
        chosen = output.chosen(format_, as_json)
        plain = output.is_json(chosen)
        rows = [sweep_views.point_row(pair, context.clock.now(), plain=plain) for pair in pairs]
        output.items("sweep_points", rows, sweep_views.POINT_COLUMNS, chosen)
        return
    (summary,) = queries.summaries(context, [found])
    chosen = output.chosen(format_, as_json)
    rows = sweep_views.group_rows(summary)
    output.items("sweep_states", rows, sweep_views.GROUP_COLUMNS, chosen)
