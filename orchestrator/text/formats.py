"""CSV that a spreadsheet does not execute, and JSON of printable characters."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable

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
