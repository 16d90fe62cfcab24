"""orchestrator sweep render."""

from __future__ import annotations

import shlex
import sys

import click

from orchestrator.cli import output, settings, spec_options, terminal


@click.command(short_help="Show the batch scripts of a sweep; nothing is submitted.")
@spec_options.spec_options
@settings.scheduler_option
@click.option(
    "--point",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the arguments of point N, from 1.",
)
@click.pass_context
def command(ctx: click.Context, /, point: int | None, **options: object) -> None:
    """Show the batch scripts of a sweep, one for each job array; nothing is submitted.

    Each is byte for byte what `sweep submit` hands to sbatch.

    \b
    Examples:
      orchestrator sweep render examples/scaling.toml
      orchestrator sweep render examples/scaling.toml --point 3
    """
    sweep, source = spec_options.sweep(options, settings.configuration_of(ctx))
    if point is not None:
        from orchestrator.specs import arguments

        if point > len(sweep.points):
            raise click.UsageError(f"{sweep.name} has {len(sweep.points)} points, and no {point}")
        chosen = sweep.points[point - 1]
        output.say(f"{chosen.name}: " + ", ".join(f"{k} = {v}" for k, v in chosen.changes.items()))
        line = shlex.join(word for pair in arguments.shared(chosen.spec) for word in pair)
        terminal.print_exactly(f"{line}\n")
        return
    from orchestrator.cli import session
    from orchestrator.controller.sweeps import plan

    context = session.open_context(ctx)
    prepared = plan.prepare_sweep(context, sweep, source=source, argv=sys.argv, without_slurm=True)
    for number, one in enumerate(prepared.ready, 1):
        if len(prepared.ready) > 1:
            count = len(one.submission.points)
            points = f"{count} point{'' if count == 1 else 's'}"
            click.echo(f"### script {number} of {len(prepared.ready)}: {points}")
        terminal.print_exactly(one.script.text)
