"""docs/reference.md: the help of every command on one page.

`python -m tests.reference` writes it, docs/keys.md and docs/json.md. tests/unit/cli/test_help.py
compares them with the code.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import click

from orchestrator import cli
from orchestrator.cli import commands
from tests import keys, python_reference

#: What `orchestrator --host` needs to know without importing the commands.
READING = pathlib.Path(__file__).parents[1] / "orchestrator/remote/reading.py"
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


def reading() -> str:
    """Return the module that names the commands that change nothing, as they declare it."""
    names = sorted(
        context.command_path.removeprefix("orchestrator ")
        for command, context in everything()
        if (effects := commands.effects_of(command)) and effects.changes == "nothing"
    )
    return "".join(
        [
            '"""Commands that change nothing. Written by `python -m tests.reference`."""\n\n',
            "from __future__ import annotations\n\nCOMMANDS = frozenset(\n    {\n",
            *(f'        "{name}",\n' for name in names),
            "    }\n)\n",
        ]
    )


if __name__ == "__main__":
    from tests import json_output

    PAGE.write_text(page(), encoding="utf-8")
    keys.PAGE.write_text(keys.page(), encoding="utf-8")
    python_reference.PAGE.write_text(python_reference.page(), encoding="utf-8")
    json_output.PAGE.write_text(json_output.page(), encoding="utf-8")
    READING.write_text(reading(), encoding="utf-8")
