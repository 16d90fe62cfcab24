"""Fit a table into the width of a terminal.

docs/howto/tables.md describes the order in which cells are shortened and columns are left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from rich import cells, text

from orchestrator.cli import output
from orchestrator.cli.output import Column, terminal

Line = Mapping[str, str]

#: A longer name is shortened before columns are left out.
NAME_CHARACTERS = 24
#: A longer name is shortened if that is not enough.
MIN_NAME_CHARACTERS = 16
_MIN_TEXT_CHARACTERS = 12
_MAX_WORD_CHARACTERS = 24
#: A word that is too long is divided after one of these.
_SEPARATOR = re.compile(r".*[/,:;=&?]")
_NO_SEPARATORS = re.compile(r"[^/,:;=&?]+[/,:;=&?]?")

_FAILED = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "NOT_SUBMITTED", "BOOT_FAIL")
_STATE_STYLES = {
    "RUNNING": "green",
    "COMPLETED": "dim",
    "PENDING": "yellow",
    "SUBMIT_UNKNOWN": "bold magenta",
    "SUBMITTING": "yellow",
    "LOST": "bold red",
    **dict.fromkeys(_FAILED, "red"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    #: column -> width in terminal cells
    widths: Mapping[Column, int]
    lines: Sequence[Line]
    #: spaces between two columns
    gap: int

    @property
    def width(self) -> int:
        """Terminal cells of the longest line."""
        return sum(self.widths.values()) + self.gap * (len(self.widths) - 1)


def lay_out(
    columns: Sequence[Column], lines: Sequence[Line], short_lines: Sequence[Line], width: int
) -> Layout:
    """Fit lines with text by column name into `width` terminal cells.

    short_lines: the same lines with times in their short form. A table that cannot fit is wider.
    """
    chosen = list(columns)

    def layout(gap: int) -> Layout:
        widths = {column: _longest(column, lines) for column in chosen}
        return Layout(widths=widths, lines=lines, gap=gap)

    if (whole := layout(2)).width <= width:
        return whole
    optional = output.droppable(columns)
    for column in optional:
        if all(line[column.name] in ("", "0") for line in lines) and layout(1).width > width:
            chosen.remove(column)
    if (whole := layout(1)).width <= width:
        return whole
    lines = short_lines
    longest = layout(1).widths
    for name_characters in (NAME_CHARACTERS, MIN_NAME_CHARACTERS):
        least = {
            column: _least(column, longest[column], lines, name_characters) for column in chosen
        }
        fitting = Layout(widths=least, lines=lines, gap=1)
        for column in optional:
            if column in least and fitting.width > width:
                del least[column]
                chosen.remove(column)
    return dataclasses.replace(fitting, widths=_shared(least, longest, width - fitting.width))


def _longest(column: Column, lines: Sequence[Line]) -> int:
    return max(map(cells.cell_len, (column.name, *(line[column.name] for line in lines))))


def _least(column: Column, longest: int, lines: Sequence[Line], name_characters: int) -> int:
    if column.fit == "whole":
        return longest
    if column.fit == "name":
        return min(longest, max(name_characters, cells.cell_len(column.name)))
    contents = [column.name, *(line[column.name] for line in lines)]
    word = max(cells.cell_len(word) for content in contents for word in content.split())
    return min(longest, max(_MIN_TEXT_CHARACTERS, min(word, _MAX_WORD_CHARACTERS)))


def _shared(
    least: Mapping[Column, int], longest: Mapping[Column, int], left: int
) -> dict[Column, int]:
    """Return widths that use what is left: names get what they lack, then others share the rest."""
    widths = dict(least)
    for fits in (("name",), ("text", "parts")):
        growing = sorted(
            (column for column in least if column.fit in fits),
            key=lambda column: longest[column] - least[column],
        )
        for number, column in enumerate(growing):
            share = max(0, left) // (len(growing) - number)
            more = min(longest[column] - least[column], share)
            widths[column] += more
            left -= more
    return widths


def wrap(content: str, width: int, *, is_text: bool) -> list[str]:
    """Return lines of at most `width` cells, broken between words, then after separators.

    Where that is not possible, a word of a text is shortened, and anything else is divided.
    """
    lines = [""]
    for word in content.split():
        for index, part in enumerate(_parts(word, width, is_text=is_text)):
            gap = " " if lines[-1] and not index else ""
            if cells.cell_len(lines[-1]) + len(gap) + cells.cell_len(part) <= width:
                lines[-1] += gap + part
            else:
                lines.append(part)
    return lines[1:] if len(lines) > 1 and not lines[0] else lines


def _parts(word: str, width: int, *, is_text: bool) -> Iterator[str]:
    while cells.cell_len(word) > width:
        head = cells.chop_cells(word, width)[0]
        separated = _SEPARATOR.match(head)
        if separated is None and is_text:
            whole = _NO_SEPARATORS.match(word)
            assert whole is not None
            yield shorten(whole[0], width)
            word = word[whole.end() :]
            continue
        head = separated[0] if separated else head
        yield head
        word = word[len(head) :]
    if word:
        yield word


def shorten(name: str, width: int) -> str:
    """Return a name of at most `width` cells, with its end replaced if it is longer."""
    if cells.cell_len(name) <= width:
        return name
    end = "…" if terminal.is_utf8() else "..."
    return cells.set_cell_size(name, max(0, width - len(end))).rstrip() + end


def render(layout: Layout) -> text.Text:
    rendered = text.Text()
    heading = [_cell_lines(column, column.name.upper(), layout) for column in layout.widths]
    _append(rendered, layout, heading, ["bold"] * len(heading))
    for line in layout.lines:
        shown = [_cell_lines(column, line[column.name], layout) for column in layout.widths]
        styles = [
            _STATE_STYLES.get(line[column.name], "") if column.name == "state" else ""
            for column in layout.widths
        ]
        _append(rendered, layout, shown, styles)
    return rendered


def _cell_lines(column: Column, content: str, layout: Layout) -> list[str]:
    width = layout.widths[column]
    if column.fit == "whole" or cells.cell_len(content) <= width:
        return [content]
    if column.fit == "name":
        return [shorten(content, width)]
    return wrap(content, width, is_text=column.fit == "text")


def _append(
    rendered: text.Text, layout: Layout, shown: Sequence[Sequence[str]], styles: Sequence[str]
) -> None:
    """Append one row of the table; a cell has one or several lines."""
    widths = list(layout.widths.values())
    for number in range(max(map(len, shown), default=0)):
        pending = 0
        for lines, width, style in zip(shown, widths, styles, strict=True):
            content = lines[number] if number < len(lines) else ""
            if content:
                # Without spaces at the end of the line.
                rendered.append(" " * pending)
                rendered.append(content, style)
                pending = 0
            pending += max(0, width - cells.cell_len(content)) + layout.gap
        rendered.append("\n")
