"""orchestrator schema."""

from __future__ import annotations

from collections.abc import Iterator

import click

from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument
from orchestrator.cli.output import Column
from orchestrator.rows import row_values
from orchestrator.rows.contract import kinds, schemas
from orchestrator.rows.contract import service as contract
from orchestrator.text import formats

COLUMNS = (Column("command"), Column("kind"), Column("fields", "parts", drop=1))


@commands.command(
    "schema",
    "orchestrator schema",
    "orchestrator schema status",
    "orchestrator schema sweep results > results.schema.json",
    changes="nothing",
    prints=("schemas",),
    table=COLUMNS,
)
def schema(
    ctx: click.Context,
    words: tuple[str, ...] = argument(nargs=-1, metavar="[COMMAND]..."),
    form: str = options.form,
) -> None:
    """Print the JSON Schema of what a command prints with --json.

    It is a schema of draft 2020-12: names, types and units of all fields. With --format jsonl each
    line is one of the items. Without COMMAND: the commands, and the kinds of items that they print.
    """
    root = ctx.find_root()
    if not words:
        rows = [
            row_values.row_of(
                contract.SchemaRow,
                None,
                command=path,
                kind=kind,
                fields=schemas.field_names(kinds.KINDS[kind]),
            )
            for path, effects in _below(root.command, root, "")
            for kind in effects.prints
        ]
        output.print_rows("schemas", rows, COLUMNS, form)
        return
    command: click.Command | None = root.command
    for word in words:
        command = command.get_command(root, word) if isinstance(command, click.Group) else None
        if command is None:
            raise click.UsageError(
                f"there is no command {' '.join(words)!r}; `orchestrator schema` lists them"
            )
    assert command is not None, "there is at least one word"
    effects = commands.effects_of(command)
    if effects is None or not effects.prints:
        raise click.UsageError(
            f"{' '.join(words)} prints no JSON; `orchestrator schema` lists the commands that do"
        )
    title = f"orchestrator {' '.join(words)} --json"
    by_kind = {kind: kinds.KINDS[kind] for kind in effects.prints}
    document = schemas.of_output(title, output.SCHEMA, by_kind)
    click.echo(formats.json_text(document, indent=2))


def _below(
    command: click.Command, ctx: click.Context, path: str
) -> Iterator[tuple[str, commands.Effects]]:
    """Yield all commands below a group with what they do, in the order of the help."""
    if (effects := commands.effects_of(command)) is not None:
        yield path, effects
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _below(inner, ctx, f"{path} {name}".lstrip())
