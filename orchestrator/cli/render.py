"""orchestrator render."""

from __future__ import annotations

import os

import click

from orchestrator.cli import settings, spec_options, terminal


@click.command(
    context_settings={"ignore_unknown_options": False},
    short_help="Show the batch script of a spec; nothing is submitted.",
)
@spec_options.spec_options
@settings.scheduler_option
@click.pass_context
def command(ctx: click.Context, /, **options: object) -> None:
    """Show the batch script of a spec or of a batch file; nothing is submitted.

    The text is byte for byte what `submit` hands to sbatch. Needs no Slurm.

    \b
    Example:
      orchestrator render examples/digits_ddp.toml --set resources.nodes=2
    """
    from orchestrator.controller.submission import render

    configuration = settings.configuration_of(ctx)
    request = spec_options.request(options, configuration)
    is_local = render.is_local(configuration, os.environ)
    terminal.print_exactly(render.render(configuration, request, is_local=is_local).text)
    spec_options.tell_command_line(request)
