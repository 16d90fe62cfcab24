"""The columns of a table, and which of them give way on a narrow terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal


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


def column(given: Column | str) -> Column:
    """Return a column; a name alone is never cut or left out."""
    return Column(given) if isinstance(given, str) else given


def names(columns: Sequence[Column | str]) -> list[str]:
    return [column(each).name for each in columns]


def droppable(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that may be left out, in this order."""
    numbered = [(each.drop, each) for each in columns if each.drop is not None]
    return [each for _, each in sorted(numbered, key=lambda pair: pair[0])]


def left_out(columns: Sequence[Column]) -> str:
    """Return the help about columns that a narrow terminal does not show."""
    headings = ", ".join(each.name.upper() for each in droppable(columns))
    return headings and f"On a narrow terminal columns are left out in this order: {headings}."
