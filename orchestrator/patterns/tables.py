"""Reads tables in logs: a header with names of metrics, and the rows of numbers below it.

A table may be one line: names with as many numbers behind them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.patterns import regexes, vocabulary

_MAX_COLUMNS = 80
SCALES = {"k": "e3", "K": "e3", "M": "e6", "B": "e9"}
_BORDERS = " |\t\r\u2502\u2503"
_CELL_END = re.compile(r"[ ]*[|\t\u2502\u2503][ |\t\u2502\u2503]*|[ ]{2,}|,[ ]*")
_WIDE_END = re.compile(r"[ ]{2,}")
#: Step (% Done), Train Iter (time)
_NOTE = re.compile(r"[ ]\(([^()]*)\)")
#: The end of a row that a progress bar follows, as ultralytics prints it.
_BAR = re.compile(r":?\s+(?=[0-9]+%(?:\||\s))")
#: 0.5, 3/100, 2.1G, images/sec: 135.5
_NUMBER = re.compile(
    rf"(?:^|(?<=[ ]))({regexes.THOUSANDS}|{regexes.NUMBER})(?:/[0-9]+)?"
    r"(?:[ ]?([A-Za-z%]{1,4}))?(?=[ ]|$)",
    re.ASCII,
)

_SINGLE = r"[-+]?[0-9]*[.]?[0-9]+(?:e[-+]?[0-9]+)?"
#: loss_a,loss_b 0.5 0.6 or Train/Val Loss: 0.5/0.6
_LISTED = re.compile(
    r"(?<![\w./])(?P<names>[A-Za-z_]\w*(?P<sign>,[ ]?|[ ]?/[ ]?)[A-Za-z_]\w*"
    r"(?:(?P=sign)[A-Za-z_]\w*)*)"
    rf"(?P<of>(?:[ ][A-Za-z]\w*)?)[ ]*[:=]?[ ]*[\[(]?"
    rf"(?P<numbers>{_SINGLE}(?:(?:[ ]*[,/][ ]*|[ ]+){_SINGLE})+)[\])]?(?![\w.%/])",
    re.ASCII,
)
#: Accuracy (Loss): 0.51 (1.37)
_BESIDE = re.compile(
    rf"(?P<first>[A-Za-z_]\w*)[ ]\((?P<second>[A-Za-z_]\w*)\)(?P<sign>[ ]*[:=][ ]*)"
    rf"(?P<number>{_SINGLE})[ ]?\((?P<other>{_SINGLE})\)",
    re.ASCII,
)

#: Parts of the loss of detectors, whose tables do not say that they are losses.
_LOSS_PARTS = frozenset(
    "box obj cls dfl seg pose kobj total giou iou lbox lobj lcls l1 mask theta "
    "angle landmark".split()
)

#: Name, number as float() reads it, and unit.
Cell = tuple[vocabulary.Meaning, str, str]


def header(text: str) -> tuple[str, ...]:
    """Return the names of a table's columns; () if they do not look like those of metrics."""
    text = text.strip(_BORDERS)
    cells = _CELL_END.split(text)
    if len(cells) < 3:
        cells = text.split()
    known = [found for found in map(_meaning, cells, [cells] * len(cells)) if found is not None]
    kinds = {each.kind for each in known}
    # Other words with a counter and a loss among them are names that we do not know.
    is_most = 2 * len(known) >= len(cells) or (
        "counter" in kinds and not any(" " in cell for cell in cells)
    )
    is_header = 2 <= len(known) and len(cells) <= _MAX_COLUMNS and is_most
    return tuple(cells) if is_header and kinds & vocabulary.STRONG else ()


def listed(text: str) -> str:
    """Return the text with each number behind its name: `a,b 0.5 0.6` becomes `a: 0.5, b: 0.6`."""
    text = _LISTED.sub(_paired, text) if "," in text or "/" in text else text
    return _BESIDE.sub(_both, text) if ") " in text or "):" in text or ")=" in text else text


def _paired(match: re.Match[str]) -> str:
    sign = match["sign"].strip()
    names = [name.strip() + match["of"] for name in match["names"].split(sign)]
    between = re.split(r"[ ]*/[ ]*" if sign == "/" else r"[ ]*,[ ]*|[ ]+", match["numbers"])
    # IS, FID: 8.5, 16.5
    is_behind = all("." in number for number in between) and ":" in match[0]
    if len(between) != len(names) or not all(
        map(vocabulary.meaning, names[-1:] if is_behind else names)
    ):
        return match[0]
    return ", ".join(f"{name}: {number}" for name, number in zip(names, between, strict=True))


def _both(match: re.Match[str]) -> str:
    if vocabulary.meaning(match["second"]) is None:
        return match[0]
    return f"{match['first']}: {match['number']}, {match['second']}: {match['other']}"


def _without_note(note: re.Match[str]) -> str:
    return " time" if note[1] == "time" else ""


def _meaning(column: str, columns: Sequence[str]) -> vocabulary.Meaning | None:
    """Return what a column contains; beside other parts of a loss, `box` is one, too."""
    # box, or box_oo of several boxes
    column = _NOTE.sub(_without_note, column)
    parts = {each.partition("_")[0] for each in columns if "loss" not in each}
    if column.partition("_")[0] in parts & _LOSS_PARTS and len(_LOSS_PARTS & parts) > 1:
        return vocabulary.Meaning(f"{column}_loss", "loss")
    return vocabulary.last_meaning(column)


def row(text: str, columns: Sequence[str]) -> tuple[list[Cell], str]:
    """Return the cells of known columns, and the progress bar behind the row.

    ([], "") if the text is no row of this table: another number of cells, no metric, or a counter
    column without a number.
    """
    text, *bars = _BAR.split(text, maxsplit=1)
    text = text.strip(_BORDERS)
    for texts in (_CELL_END.split(text), text.split(), _WIDE_END.split(text)):
        if len(texts) != len(columns):
            continue
        numbers = sum(_NUMBER.search(cell) is not None for cell in texts)
        is_text = vocabulary.last_meaning(columns[0]) and not _NUMBER.match(texts[0])
        if is_text or 2 * numbers < len(columns):
            continue
        cells: list[Cell] = []
        for column, cell in zip(columns, texts, strict=True):
            found, number = _meaning(column, columns), _NUMBER.search(cell)
            if found is not None and number is not None:
                unit, value = number[2] or "", number[1].replace(",", "")
                if found.kind in ("rate", "counter") and unit in SCALES:
                    # 31.26 M
                    unit, value = "", value + SCALES[unit]
                cells.append((found, value, unit))
            elif found is not None and found.kind == "counter":
                break
        else:
            if vocabulary.STRONG.intersection(found.kind for found, _, _ in cells):
                return cells, "".join(bars)
    return [], ""
