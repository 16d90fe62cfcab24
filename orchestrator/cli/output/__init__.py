"""Print rows as a table, TSV, CSV, JSON or JSON lines; a table is the default on a terminal."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from orchestrator.cli.output import terminal
from orchestrator.text import escaping

if TYPE_CHECKING:
    from rich import console

    from orchestrator.cli.output import tables

SCHEMA = "orchestrator/v1"
FORMATS = ("table", "tsv", "csv", "json", "jsonl")


Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table; its heading is `name` in capitals."""

    name: str
    #: What happens to a cell, or the heading, that is too long for its column.
    #: whole: nothing, such as for a state; name: it is shortened at its end; text: it continues on
    #: the next line, and a word that is too long is shortened; parts: it continues on the next
    #: line, after a separator if there is one, such as for a path or a list of nodes.
    fit: Literal["whole", "name", "text", "parts"] = "whole"
    #: The column with the lowest number is left out first; None: never.
    drop: int | None = None


def as_column(given: Column | str) -> Column:
    """Return a column; a name alone is never cut or left out."""
    return Column(given) if isinstance(given, str) else given


def column_names(columns: Sequence[Column | str]) -> list[str]:
    return [as_column(each).name for each in columns]


def droppable(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that may be left out, in this order."""
    numbered = [(each.drop, each) for each in columns if each.drop is not None]
    return [each for _, each in sorted(numbered, key=lambda pair: pair[0])]


def left_out(columns: Sequence[Column]) -> str:
    """Return the help about columns that a narrow terminal does not show."""
    headings = ", ".join(each.name.upper() for each in droppable(columns))
    return headings and f"On a narrow terminal columns are left out in this order: {headings}."


def default_format() -> str:
    return "table" if sys.stdout.isatty() else "tsv"


def is_json(form: str) -> bool:
    """Return whether rows are printed with all their fields, and values as they are."""
    return form in ("json", "jsonl")


def print_rows(
    kind: str,
    rows: Sequence[Row],
    columns: Sequence[Column | str],
    form: str,
    line: Callable[[Row], Row] | None = None,
) -> None:
    """Print all keys of `rows` as JSON, or their `columns` in another format.

    line: returns a row with the values that other formats than JSON show
    """
    from orchestrator.text import formats

    if line is not None and not is_json(form):
        rows = list(map(line, rows))
    if form == "json":
        from orchestrator.rows import row_values

        items = [row_values.json_value(row) for row in rows]
        envelope = {"schema": SCHEMA, "kind": kind, "items": items}
        click.echo(formats.json_text(envelope, indent=2))
    elif form == "table":
        _print_table(rows, columns)
    else:
        print_pages(kind, [rows], columns, form)


def print_newest(
    kind: str,
    rows: Sequence[Row],
    columns: Sequence[Column | str],
    form: str,
    limit: int,
    line: Callable[[Row], Row] | None = None,
) -> None:
    """Print at most `limit` rows, and a message if there are more; `rows`: at least one more."""
    print_rows(kind, rows[:limit], columns, form, line)
    note_limit(rows, limit)


def note_limit(rows: Sequence[object], limit: int) -> None:
    """Print a message if only the first `limit` rows are shown."""
    if len(rows) > limit:
        note(f"Only the newest {limit} are shown; --limit changes the number.")


def print_pages(
    kind: str,
    pages: Iterable[Sequence[Row]],
    columns: Sequence[Column | str],
    form: str,
    path: Path | None = None,
) -> int:
    """Print pages of rows one after another, or replace the file `path`; a table needs all rows.

    Returns the number of rows.
    """
    total = 0

    def counted() -> Iterator[Sequence[Row]]:
        nonlocal total
        for rows in pages:
            total += len(rows)
            yield rows

    with terminal.printing_to(path):
        if form == "table":
            _print_table(list(itertools.chain.from_iterable(counted())), columns)
        else:
            for text in texts(kind, counted(), columns, form):
                click.echo(text, nl=False)
    return total


def texts(
    kind: str, pages: Iterable[Sequence[Row]], columns: Sequence[Column | str], form: str
) -> Iterator[str]:
    """Yield the text of pages of rows, in JSON with one row per line."""
    from orchestrator.text import formats

    names = column_names(columns)
    if form == "json":
        head = formats.json_text({"schema": SCHEMA, "kind": kind})
        yield f'{head[:-1]}, "items": ['
        separator = "\n"
        for rows in pages:
            if rows:
                yield separator + ",\n".join(map(_json_line, rows))
                separator = ",\n"
        yield "\n]}\n"
    elif form == "jsonl":
        for rows in pages:
            yield "".join(f"{_json_line(row)}\n" for row in rows)
    elif form == "csv":
        yield formats.csv_text([names])
        for rows in pages:
            yield formats.csv_text([_cell(row, name) for name in names] for row in rows)
    else:
        yield "\t".join(map(escaping.one_line, names)) + "\n"
        for rows in pages:
            cells = ([escaping.one_line(_cell(row, name)) for name in names] for row in rows)
            yield "".join("\t".join(line) + "\n" for line in cells)


def _json_line(row: Row) -> str:
    from orchestrator.rows import row_values
    from orchestrator.text import formats

    return formats.json_text(row_values.json_value(row))


def _cell(row: Row, name: str) -> str:
    from orchestrator.rows import row_values

    value = row.get(name)
    # As commands accept it.
    return f"@{value}" if name == "row" and isinstance(value, int) else row_values.cell(value)


def is_drawable() -> bool:
    """Return whether stdout is a terminal that supports escape sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


#: Used where stdout is not a terminal.
_UNLIMITED = 10_000


def _table_cell(row: Row, name: str, *, is_short: bool = False) -> str:
    value = row.get(name)
    if isinstance(value, float):
        from orchestrator.rows import row_values

        return row_values.number(value)
    if is_short and isinstance(value, datetime.datetime):
        return value.astimezone().strftime("%Y-%m-%dT%H:%M")
    return _cell(row, name)


def fits(rows: Sequence[Row], columns: Sequence[Column | str]) -> bool:
    """Return whether a table is not wider than stdout, with all that may be shortened shortened."""
    stdout, layout = _laid_out(rows, columns)
    return not sys.stdout.isatty() or layout.width <= stdout.width


def _print_table(rows: Sequence[Row], columns: Sequence[Column | str]) -> None:
    from orchestrator.cli.output import tables

    stdout, layout = _laid_out(rows, columns)
    # A table that is too wide is wrapped by the terminal: a cut job ID would be a wrong job ID.
    stdout.print(tables.render(layout), soft_wrap=True, end="")


def _laid_out(
    rows: Sequence[Row], columns: Sequence[Column | str]
) -> tuple[console.Console, tables.Layout]:
    # Help is to need no more than click.
    import shutil

    from rich import console

    from orchestrator.cli.output import tables

    shown = list(map(as_column, columns))

    def lines(text: Callable[[Row, str], str]) -> list[dict[str, str]]:
        names = column_names(shown)
        return [{name: escaping.one_line(text(row, name)) for name in names} for row in rows]

    # Rich accepts any digits in COLUMNS and LINES as a number.
    size = shutil.get_terminal_size()
    stdout = console.Console(
        file=terminal.unescaped(),
        width=min(size.columns, _UNLIMITED),
        height=min(size.lines, _UNLIMITED),
        # no_color leaves bold and dim, and with FORCE_COLOR Rich treats a pipe as a terminal.
        color_system="auto" if is_drawable() and not os.environ.get("NO_COLOR") else None,
        highlight=False,
    )
    if sys.stdout.isatty():
        short = lines(functools.partial(_table_cell, is_short=True))
        return stdout, tables.lay_out(shown, lines(_table_cell), short, stdout.width)
    # Full values, whatever their length.
    whole = lines(_cell)
    return stdout, tables.lay_out(shown, whole, whole, sys.maxsize)


def count(number: int, noun: str) -> str:
    """Return `1 point`, `2 points`."""
    from orchestrator.text import nouns

    return nouns.count(number, noun)


def print_fields(fields: Iterable[tuple[str, object]], width: int = 13) -> None:
    """Print each field that has a value, as "Name:  value"."""
    from orchestrator.rows import row_values

    for name, value in fields:
        if text := escaping.one_line(row_values.cell(value)):
            click.echo(f"{name + ':':<{width}}{text}")


def note(message: str) -> None:
    click.echo(message, err=True)
