"""orchestrator config."""

from __future__ import annotations

import os

import click

from orchestrator import config
from orchestrator.cli import output, settings, terminal


@click.group(name="config", short_help="Draft, or show the configuration and its origins.")
def command() -> None:
    """Draft a configuration, or show the one in force and where each value comes from."""


@command.command(name="show", short_help="Print every key with its value.")
@click.option(
    "--origin", is_flag=True, help="Also the file and line, variable or option it is from."
)
@output.format_option
@click.pass_context
def show(ctx: click.Context, origin: bool, format_: str | None, as_json: bool) -> None:
    """Print every key with its value.

    Command line > ORCHESTRATOR_* > project orchestrator.toml > user > site > defaults.
    With --origin the last line says which project's file was found and whether it is trusted.

    \b
    Example:
      orchestrator config show --origin
    """
    configuration = settings.configuration_of(ctx)
    rows = [
        {"key": item.key, "value": item.value, "origin": item.origin}
        for item in configuration.origins
    ]
    if origin and (project := configuration.project):
        rows.append({"key": "project_file", "value": project.path, "origin": project.standing})
    columns = ["key", "value", "origin"] if origin else ["key", "value"]
    output.items("config", rows, columns, output.chosen(format_, as_json))


@command.command(name="init", short_help="Draft a profile of this cluster.")
@click.option("--print", "print_", is_flag=True, help="Print it and write no file.")
def init(print_: bool) -> None:
    """Draft a profile of this cluster from sinfo, scontrol show config and your accounts.

    It is written to your own configuration file; one that is there already is left alone.

    \b
    Example:
      orchestrator config init --print
    """
    from orchestrator.cli import session
    from orchestrator.config import paths
    from orchestrator.controller.setup import draft

    text = draft.draft(draft.query(session.client(), os.environ))
    if print_:
        terminal.print_exactly(text)
        return
    path = paths.user_file(os.environ)
    draft.write(path, text, config.shared_folders(os.environ))
    output.say(f"Wrote {path}. Look through it, then: orchestrator doctor")
