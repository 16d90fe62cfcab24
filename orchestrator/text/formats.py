"""CSV that a spreadsheet does not execute, JSON of printable characters, and Markdown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence

from orchestrator.text import escaping

#: Start of a formula in a spreadsheet (OWASP, "CSV injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: Our own row numbers, and their ratios.
_ROWS = re.compile(r"@[0-9]+(?:/@[0-9]+)*")


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV; text that a spreadsheet would read as a formula gets a leading `'`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    is_formula = value.startswith(_FORMULA) and not (_is_number(value) or _ROWS.fullmatch(value))
    return ("'" if is_formula else "") + escaping.lines(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


def json_text(value: object, *, indent: int | None = None, allow_nan: bool = False) -> str:
    """Return a value as JSON in ASCII."""
    # DEL is the only control character that json.dumps leaves; it occurs only in strings.
    return json.dumps(value, indent=indent, allow_nan=allow_nan).replace("\x7f", "\\u007f")


def markdown_text(text: str) -> str:
    """Return a text on one line that Markdown shows as it is."""
    line = escaping.one_line(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", line)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, with its last line end."""
    lines = [map(markdown_text, headings), ["---"] * len(headings)]
    lines += [map(markdown_text, row) for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
