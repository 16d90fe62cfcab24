"""Differences of two jobs as rows and as text. The JSON fields are a contract."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from orchestrator import jobs, reproduction
from orchestrator.cli import output
from orchestrator.cli.output import Column, terminal
from orchestrator.rows import job_rows, row_values
from orchestrator.text import escaping
from orchestrator.toml import schema

COLUMNS = (
    Column("section"),
    Column("key", "text"),
    Column("first", "parts"),
    Column("second", "parts"),
    Column("relative", drop=1),
)
_HEADINGS = {
    "spec": "Spec",
    "arguments": "Arguments",
    "code": "Code",
    "environment": "Environment",
    "results": "Results",
}
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def rows(found: Sequence[reproduction.Difference]) -> list[dict[str, object]]:
    return [dataclasses.asdict(each) for each in found]


def print_differences(
    pair: Sequence[jobs.Job], hosts: Sequence[str], found: Sequence[reproduction.Difference]
) -> None:
    """Print both jobs, and a section for each kind of difference."""
    for letter, job, host in zip("AB", pair, hosts, strict=True):
        click.echo(f"{letter}: {escaping.one_line(_head(job, host))}")
    for section, heading in _HEADINGS.items():
        own = [each for each in found if each.section == section]
        if own:
            click.echo(f"\n{heading}:")
        for each in own:
            _print(each)
    if not found:
        click.echo("\nNo differences.")
    elif not reproduction.differs(found):
        click.echo("\nNo differences but speed.")


def _head(job: jobs.Job, host: str) -> str:
    name = f"{job.job_id or '-'} (@{job.row}, {job.name})"
    seconds = job_rows.elapsed_seconds(job, job.ended_at) if job.ended_at else None
    elapsed = "" if seconds is None else f" after {row_values.elapsed(seconds)}"
    return f"{name}  {job.state}{elapsed}{f' on {host}' if host else ''}"


def _print(each: reproduction.Difference) -> None:
    key = "" if each.section == "code" else escaping.one_line(each.key)
    # Not splitlines: a carriage return, a form feed and U+2028 are parts of a line.
    lines = each.diff.removesuffix("\n").split("\n") if each.diff else []
    if each.diff is not None and key:
        click.echo(f"  {key}")
    else:
        _print_values(each, key)
    for line in lines:
        # IDs of git's objects.
        if not line.startswith("index "):
            _print_line(escaping.lines(line), indent=4 if key else 2)


def _print_values(each: reproduction.Difference, key: str) -> None:
    before, after = (_value(each, value) for value in (each.first, each.second))
    if each.key == "duration_seconds":
        key, before, after = (
            "duration",
            row_values.elapsed(each.first),
            row_values.elapsed(each.second),
        )
    change = "" if each.relative is None else f" ({100.0 * each.relative:+.3g} %)"
    line = f"  {key}  {before} -> {after}{change}"
    if key and "\n" not in line and len(line) <= _width():
        click.echo(line)
        return
    if key:
        click.echo(f"  {key}{change}")
    for mark, text in (("-", before), ("+", after)):
        for part in _wrapped(text.removesuffix("\n")):
            _print_line(f"{mark} {part}", indent=4 if key else 2)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def _wrapped(text: str) -> Iterator[str]:
    from orchestrator.cli.output import tables

    for line in text.split("\n"):
        if sys.stdout.isatty():
            yield from tables.wrap(escaping.one_line(line), max(_width() - 6, 20), is_text=False)
        else:
            yield line


def _print_line(text: str, *, indent: int) -> None:
    line = " " * indent + text
    colour = _COLOURS.get(text[:1])
    if colour and output.is_drawable() and not os.environ.get("NO_COLOR"):
        terminal.print_coloured(line, colour)
    else:
        click.echo(line)


def _value(each: reproduction.Difference, value: Any) -> str:
    if value is None:
        return "not set" if each.section in ("spec", "arguments") else "absent"
    if value == "" and each.section == "environment":
        return "present"
    if isinstance(value, float) and each.section == "results" and sys.stdout.isatty():
        return row_values.number(value)
    if isinstance(value, str) and value:
        return value
    return schema.as_toml(value, max_characters=None)
