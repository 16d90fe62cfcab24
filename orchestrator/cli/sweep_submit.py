"""orchestrator sweep submit."""

from __future__ import annotations

import sys

import click

from orchestrator.cli import output, settings, spec_options


@click.command(short_help="Submit all points of a sweep, each exactly once.")
@spec_options.spec_options
@settings.scheduler_option
@click.option("--dry-run", is_flag=True, help="Show what would be submitted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, however large the sweep is.")
@click.option("--wait", "wait_", is_flag=True, help="Wait for its end; exit 1 unless COMPLETED.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    dry_run: bool,
    yes: bool,
    wait_: bool,
    format_: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Submit all points of a sweep, each exactly once.

    The points are those of the table [sweep] in the file. All of them are checked before anything
    is submitted. Points of one shape go as job arrays; what Slurm has no room for waits, and is
    sent by the first command that looks at Slurm when there is room.

    The sweep's name is the job's. Above the profile's confirm_points and confirm_gpu_hours it asks
    first.

    \b
    Examples:
      orchestrator sweep submit examples/scaling.toml --dry-run
      orchestrator sweep submit examples/scaling.toml --set sweep.repeats=5 --name weekly --wait
    """
    configuration = settings.configuration_of(ctx)
    sweep, source = spec_options.sweep(options, configuration)
    # A spec with problems is told before the database is loaded, which takes a fifth of a second.
    from orchestrator.cli import session, sweep_sending
    from orchestrator.controller.sweeps import plan, submit_points

    context = session.open_context(ctx)
    prepared = plan.prepare_sweep(
        context, sweep, source=source, argv=sys.argv, without_slurm=dry_run
    )
    chosen = output.chosen(format_, as_json)
    output.say(sweep_sending.plan_line(sweep.name, sweep.table.kind, prepared))
    if dry_run:
        sweep_sending.show_plan(prepared, chosen)
        return
    sweep_sending.ask(plan.needs_consent(context, prepared), yes=yes)
    stored = submit_points.create(context, prepared, sweep, source)
    sent = submit_points.submit_stored(prepared, stored, sweep.points, report=sweep_sending.tell)
    sweep_sending.told(context, sent, format_, as_json)
    if wait_:
        sweep_sending.wait(context, stored)
