"""Records -> table, tsv, csv, json, jsonl on stdout; a table only on a terminal by default."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import click

from orchestrator.cli import terminal
from orchestrator.text import escaping, formats
from orchestrator.toml import values

SCHEMA = "orchestrator/v1"
FORMATS = ("table", "tsv", "csv", "json", "jsonl")

Row = Mapping[str, object]


def format_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --format and --json."""
    command = click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(
        command
    )
    return click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        help="Default: table on a terminal, tsv in a pipe.",
    )(command)


def limit_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --limit."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=1, max=10**9),
        default=100,
        show_default=True,
        help="At most so many, the newest.",
    )(command)


def chosen(format_: str | None, as_json: bool) -> str:
    """Return the format to print."""
    if as_json:
        return "json"
    return format_ or ("table" if sys.stdout.isatty() else "tsv")


def is_json(chosen_format: str) -> bool:
    """Tell whether a program reads it: values then stand as they are, with all their fields."""
    return chosen_format in ("json", "jsonl")


def refuse_format(option: str, format_: str | None, as_json: bool) -> None:
    """Raise UsageError where a format is asked of what `option` prints: a text as it stands."""
    if format_ is not None or as_json:
        raise click.UsageError(
            f"{option} prints a text as it stands; leave out --format and --json"
        )


def items(
    kind: str,
    rows: Sequence[Row],
    columns: Sequence[str],
    format_: str,
) -> None:
    """Print `rows`: all their keys in json and jsonl, `columns` in the others."""
    if format_ == "json":
        envelope = {"schema": SCHEMA, "kind": kind, "items": [_plain(row) for row in rows]}
        click.echo(formats.json_text(envelope, indent=2))
    elif format_ == "table":
        _table(rows, columns)
    else:
        for text in texts(kind, [rows], columns, format_):
            click.echo(text, nl=False)


def texts(
    kind: str, pages: Iterable[Sequence[Row]], columns: Sequence[str], format_: str
) -> Iterator[str]:
    """Yield the text of rows that come page by page: as items() prints them, an item a line."""
    if format_ == "json":
        head = formats.json_text({"schema": SCHEMA, "kind": kind})
        yield f'{head[:-1]}, "items": ['
        before = "\n"
        for rows in pages:
            if rows:
                yield before + ",\n".join(map(_as_json, rows))
                before = ",\n"
        yield "\n]}\n"
    elif format_ == "jsonl":
        for rows in pages:
            yield "".join(f"{_as_json(row)}\n" for row in rows)
    elif format_ == "csv":
        yield formats.csv_text([columns])
        for rows in pages:
            yield formats.csv_text([cell(row.get(name)) for name in columns] for row in rows)
    else:
        yield "\t".join(map(escaping.one_line, columns)) + "\n"
        for rows in pages:
            cells = ([escaping.one_line(cell(row.get(name))) for name in columns] for row in rows)
            yield "".join("\t".join(line) + "\n" for line in cells)


def _as_json(row: Row) -> str:
    return formats.json_text(_plain(row))


def is_drawable() -> bool:
    """Tell whether stdout is a terminal that knows escape sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _plain(row: Row) -> dict[str, object]:
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, float) and value != value:
        # JSON has no NaN (RFC 8259); a loss of NaN is a fact worth telling all the same.
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value == float("inf") else "-Infinity"
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def cell(value: object) -> str:
    """Return a value as a person reads it, in one table cell."""
    if value is None:
        return ""
    # Nearly all cells are these, and there may be millions.
    if isinstance(value, str):
        return value
    if type(value) in (int, float):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone().isoformat(timespec="seconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


#: Columns of free text, which are folded on a narrow terminal, but not below so many characters.
_FOLDED = ("name", "reason", "node_list", "value", "found", "cure", "problem", "origin")
_FOLDED_LEAST = 12
#: Where stdout is no terminal, nothing has to be folded.
_WIDE = 10_000


def _table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich import cells, console, table, text

    lines = [{name: escaping.one_line(cell(row.get(name))) for name in columns} for row in rows]
    longest = {
        name: max(map(cells.cell_len, (name, *(line[name] for line in lines)))) for name in columns
    }
    # Rich takes COLUMNS and LINES with any digits for a number.
    size = shutil.get_terminal_size()
    stdout = console.Console(
        file=terminal.unescaped(),
        width=min(size.columns, _WIDE),
        height=min(size.lines, _WIDE),
        # no_color leaves bold and dim, and FORCE_COLOR lets Rich take a pipe for a terminal.
        color_system="auto" if is_drawable() and not os.environ.get("NO_COLOR") else None,
        highlight=False,
    )
    width = stdout.width if sys.stdout.isatty() else _WIDE
    gap = 2 if sum(longest.values()) + 2 * len(columns) <= width else 1
    widths = _widths(longest, width - gap * len(columns))
    # Never cut: a cut job ID is a wrong job ID. A terminal that is too narrow breaks the lines.
    stdout.width = max(width, sum(widths.values()) + gap * len(columns))
    shown = table.Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for name in columns:
        # As a Text: in a plain string Rich would read `[red]` as a style.
        shown.add_column(
            text.Text(escaping.one_line(name.upper())), overflow="fold", width=widths[name]
        )
    for row, line in zip(rows, lines, strict=True):
        shown.add_row(*(text.Text(line[name], style=_style(name, row)) for name in columns))
    stdout.print(shown)


def _widths(longest: Mapping[str, int], room: int) -> dict[str, int]:
    """Return each column's width: the longest cell's, where there is room for all of them."""
    widths = {name: length for name, length in longest.items() if name not in _FOLDED}
    room -= sum(widths.values())
    folded = sorted((name for name in longest if name in _FOLDED), key=lambda name: longest[name])
    for place, name in enumerate(folded):
        share = max(room // (len(folded) - place), _FOLDED_LEAST)
        widths[name] = min(longest[name], share)
        room -= widths[name]
    return widths


_STATE_STYLES = {
    "RUNNING": "green",
    "COMPLETED": "dim",
    "PENDING": "yellow",
    "SUBMIT_UNKNOWN": "bold magenta",
    "SUBMITTING": "yellow",
    "LOST": "bold red",
}


def _style(column: str, row: Row) -> str:
    if column != "state":
        return ""
    state = str(row.get("state"))
    bad = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "NOT_SUBMITTED", "BOOT_FAIL")
    return _STATE_STYLES.get(state, "red" if state in bad else "")


def clock(at: datetime.datetime) -> str:
    """Return the time of day here, `HH:MM:SS`."""
    return at.astimezone().strftime("%H:%M:%S")


def elapsed(seconds: float | None) -> str:
    """Return `[D-]HH:MM:SS`, as Slurm prints it; "" for none."""
    return "" if seconds is None else values.elapsed(seconds)


def field(name: str, value: object, width: int = 13) -> None:
    """Print a field of a record, "Name:  value", unless it has no value."""
    if text := escaping.one_line(cell(value)):
        click.echo(f"{name + ':':<{width}}{text}")


def say(message: str) -> None:
    """Tell a person something, on stderr."""
    click.echo(message, err=True)
