"""Records -> table, tsv, csv, json, jsonl on stdout; a table only on a terminal by default."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import click

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


def chosen(format_: str | None, as_json: bool) -> str:
    """Return the format to print."""
    if as_json:
        return "json"
    return format_ or ("table" if sys.stdout.isatty() else "tsv")


def items(
    kind: str,
    rows: Sequence[Row],
    columns: Sequence[str],
    format_: str,
    *,
    headings: Mapping[str, str] | None = None,
) -> None:
    """Print `rows`: all their keys in json and jsonl, `columns` in the others."""
    if format_ == "json":
        envelope = {"schema": SCHEMA, "kind": kind, "items": [_plain(row) for row in rows]}
        click.echo(json.dumps(envelope, indent=2, allow_nan=False))
    elif format_ == "jsonl":
        for row in rows:
            click.echo(json.dumps(_plain(row), allow_nan=False))
    elif format_ == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([[_guarded(cell(row.get(name))) for name in columns] for row in rows])
        click.echo(text.getvalue(), nl=False)
    elif format_ == "tsv":
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(_one_line(cell(row.get(name))) for name in columns))
    else:
        _table(rows, columns, headings or {})


def _plain(row: Row) -> dict[str, object]:
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: object) -> object:
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
    return value


def cell(value: object) -> str:
    """Return a value as a person reads it, in one table cell."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return value.astimezone().isoformat(timespec="seconds")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(item) for item in value)
    return str(value)


def _one_line(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ").replace("\r", " ")


def _guarded(text: str) -> str:
    # A spreadsheet runs cells that begin so (OWASP, "CSV injection"); numbers stay numbers.
    if text[:1] in ("=", "@") or (text[:1] in ("+", "-") and not _is_number(text)):
        return "'" + text
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _table(rows: Sequence[Row], columns: Sequence[str], headings: Mapping[str, str]) -> None:
    from rich import box, console, table, text

    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        heading = headings.get(name, name.upper().replace("_", " "))
        # Folded, never cut: a cut job ID is a wrong job ID.
        shown.add_column(heading, overflow="fold", no_wrap=name in ("job_id", "state", "row"))
    for row in rows:
        shown.add_row(
            *(
                text.Text(_one_line(cell(row.get(name))), style=_style(name, row))
                for name in columns
            )
        )
    console.Console(
        file=sys.stdout,
        no_color="NO_COLOR" in os.environ or not sys.stdout.isatty(),
        highlight=False,
        soft_wrap=False,
    ).print(shown)


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


def elapsed(seconds: float | None) -> str:
    """Return `[D-]HH:MM:SS`, as Slurm prints it."""
    if seconds is None:
        return ""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{days}-{clock}" if days else clock


def say(message: str) -> None:
    """Tell a person something, on stderr."""
    click.echo(message, err=True)
