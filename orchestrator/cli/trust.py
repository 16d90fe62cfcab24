"""orchestrator trust."""

from __future__ import annotations

import os
from pathlib import Path

import click

from orchestrator import config, errors
from orchestrator.cli import output
from orchestrator.config import channels, paths, projects, trust
from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, schema


@click.command(short_help="Trust a project's orchestrator.toml that you have reviewed.")
@click.option("--list", "list_", is_flag=True, help="List the files that were trusted.")
@click.option("--remove", is_flag=True, help="Trust the file in DIR no longer.")
@output.format_option
@click.argument("folder", metavar="[DIR]", required=False)
def command(
    folder: str | None, list_: bool, remove: bool, format_: str | None, as_json: bool
) -> None:
    """Trust the orchestrator.toml in DIR, and the files of the project that it names.

    Without trust, a project's file may only say what a job is: account, partition, modules,
    binds, limits and patterns. A trusted file may set every key, and is read even where other
    users can write. Shown first is what needs the trust. Trust ends when the file, or a template,
    pattern file or command of the project that it names, changes.

    \b
    Examples:
      orchestrator trust .
      orchestrator trust --list
      orchestrator trust --remove .
    """
    if (list_ and (remove or folder is not None)) or (not list_ and folder is None):
        raise click.UsageError("name the folder of an orchestrator.toml, or give --list")
    if list_:
        rows = [{"path": path, "state": _state(path)} for path in trust.trusted_files(os.environ)]
        output.items("trusted", rows, ["path", "state"], output.chosen(format_, as_json))
        return
    output.refuse_format("trust DIR", format_, as_json)
    path = Path(os.path.realpath(str(folder)), paths.PROJECT_FILE)
    if remove:
        _remove(path)
    else:
        _trust(path)


def _trust(path: Path) -> None:
    review = projects.review(path, os.environ)
    shown = escaping.visible(str(path))
    for at, value in review.settings:
        click.echo(f"{documents.dotted(at)} = {_shown(at, value)}")
    for file in review.named:
        click.echo(f"# trusted with it: {escaping.visible(str(file))}")
    trust.record(os.environ, path, review.digest)
    settings = "with the settings above" if review.settings else "though no setting of it needs it"
    output.say(f"Trusted {shown} {settings}. Any change to it ends the trust.")


def _remove(path: Path) -> None:
    shown = escaping.visible(str(path))
    if not trust.remove(os.environ, path):
        raise errors.NotFoundError(f"{shown} was not trusted")
    output.say(f"{shown} is no longer trusted")


def _state(path: Path) -> str:
    try:
        review = projects.review(path, os.environ)
    except errors.ConfigurationError:
        return "cannot be read"
    return "trusted" if review.digest in trust.digests(os.environ, path) else "changed"


def _shown(path: key_paths.KeyPath, value: object) -> str:
    if isinstance(value, str):
        if path == ("database",):
            value = config.without_password(value)
        elif path[0] == "notices" and path[-1] == "url":
            value = channels.shown_url(value)
    return schema.as_toml(value, max_characters=None)
