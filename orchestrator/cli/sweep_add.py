"""orchestrator sweep add."""

from __future__ import annotations

import sys

import click

from orchestrator.cli import output, settings, spec_options


@click.command(short_help="Add points to a sweep, and submit them.")
@click.argument("sweep", metavar="SWEEP")
@spec_options.spec_options
@click.option("--dry-run", is_flag=True, help="Show what would be submitted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, however many they are.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    sweep: str,
    dry_run: bool,
    yes: bool,
    format_: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Add the points of a file to a sweep that was submitted, and submit those that are new.

    A point that changes the same keys to the same values is the same point, and stays as it is. The
    sweep keeps the max_running and baseline_first that it was submitted with.

    \b
    Example:
      orchestrator sweep add digits-scaling examples/scaling.toml --set sweep.repeats=5
    """
    configuration = settings.configuration_of(ctx)
    found, source = spec_options.sweep(options, configuration)
    from orchestrator.cli import session, sweep_sending
    from orchestrator.controller.sweeps import plan, queries, resume, submit_points

    context = session.open_context(ctx)
    stored = queries.find(context, sweep)
    new = resume.new_points(context, stored, found)
    baseline_first = queries.baseline_first(context, stored)
    for key, here, there in (
        ("max_running", found.table.max_running, stored.max_running),
        ("baseline_first", found.table.baseline_first or None, baseline_first or None),
    ):
        if here is not None and here != there:
            output.say(f"sweep.{key} of this file does nothing: @{stored.row} keeps its own")
    if not new:
        output.say(f"All {len(found.points)} points are in {stored.name} already")
        if format_ is not None or as_json:
            sweep_sending.told(context, submit_points.Submitted(sweep=stored), format_, as_json)
        return
    prepared = plan.prepare_points(context, stored, new, sys.argv, source=source)
    output.say(sweep_sending.plan_line(stored.name, stored.kind, prepared))
    if dry_run:
        sweep_sending.show_plan(prepared, output.chosen(format_, as_json))
        return
    sweep_sending.ask(plan.needs_consent(context, prepared), yes=yes)
    sent = resume.add_points(prepared, stored, found, new, report=sweep_sending.tell)
    sweep_sending.told(context, sent, format_, as_json)
