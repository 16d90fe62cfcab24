"""orchestrator config."""

from __future__ import annotations

import click

from orchestrator.cli import output, settings


@click.group(name="config", short_help="Show the configuration and where each value comes from.")
def command() -> None:
    """Show the configuration and where each value comes from."""


@command.command(name="show", short_help="Print every key with its value.")
@click.option(
    "--origin", is_flag=True, help="Also the file and line, variable or option it is from."
)
@output.format_option
@click.pass_context
def show(ctx: click.Context, origin: bool, format_: str | None, as_json: bool) -> None:
    """Print every key with its value.

    Command line > ORCHESTRATOR_* > project orchestrator.toml > user > site > defaults.

    \b
    Example:
      orchestrator config show --origin
    """
    configuration = settings.configuration_of(ctx)
    rows = [
        {"key": item.key, "value": item.value, "origin": item.origin}
        for item in configuration.origins
    ]
    columns = ["key", "value", "origin"] if origin else ["key", "value"]
    output.items("config", rows, columns, output.chosen(format_, as_json))
