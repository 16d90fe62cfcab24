"""docs/reference.md: the help of every command on one page.

`python -m tests.reference` writes it, docs/keys.md and docs/json.md. tests/unit/cli/test_help.py
compares them with the code.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import click

from orchestrator import cli
from tests import keys, python_reference

PAGE = pathlib.Path(__file__).parents[1] / "docs/reference.md"
#: As wide as the help may get (cli's max_content_width), so that lines break in one place only.
WIDTH = 100


def page() -> str:
    """Return the page as it should be."""
    parts = [
        "# Commands",
        "Written by `python -m tests.reference` from the help of the commands. Exit codes, output"
        " formats and job names: [howto/scripting.md](howto/scripting.md). Keys of specs and of the"
        " configuration: [keys.md](keys.md).",
    ]
    for command, context in everything():
        parts.append(f"## {context.command_path}")
        parts.append(f"```text\n{command.get_help(context).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def everything() -> Iterator[tuple[click.Command, click.Context]]:
    """Yield each command with its context, in the order of the help."""
    root = click.Context(cli.cli, info_name="orchestrator", **cli.cli.context_settings)
    yield from _below(cli.cli, root)


def _below(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    context.terminal_width = WIDTH
    # click keeps the option that a command had in its first context (8.2, core.py): which names it
    # has would depend on what else ran before.
    command._help_option = None
    yield command, context
    if isinstance(command, click.Group):
        # Without its own arguments, which are unusual between a group and its command.
        group = click.Group(command.name)
        above = click.Context(group, info_name=context.info_name, parent=context.parent)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _below(inner, click.Context(inner, info_name=name, parent=above))


if __name__ == "__main__":
    from tests import json_output

    PAGE.write_text(page(), encoding="utf-8")
    keys.PAGE.write_text(keys.page(), encoding="utf-8")
    python_reference.PAGE.write_text(python_reference.page(), encoding="utf-8")
    json_output.PAGE.write_text(json_output.page(), encoding="utf-8")
