"""Reads tables in logs: a header with names of metrics, and the rows of numbers below it.

A table may be one line: names with as many numbers behind them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.patterns import regexes, training_phases, vocabulary

_MAX_COLUMNS = 80
SCALES = {"k": "e3", "K": "e3", "M": "e6", "B": "e9"}
_BORDERS = " |\t\r\u2502\u2503"
_CELL_END = re.compile(r"[ ]*[|\t\u2502\u2503][ |\t\u2502\u2503]*|[ ]{2,}|[,;][ ]*")
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

# Each number matches in one way: several would take exponential time in a list.
_SINGLE = r"[-+]?(?:[0-9]++(?:[.][0-9]++)?|[.][0-9]++)(?:e[-+]?[0-9]++)?"
_TWO_NUMBERS = re.compile(rf"{_SINGLE}[ ]{_SINGLE}")
#: loss_a,loss_b 0.5 0.6 or Train/Val Loss: 0.5/0.6
_LISTED = re.compile(
    r"(?<![\w./])(?P<names>[A-Za-z_]\w*(?P<sign>,[ ]?|[ ]?/[ ]?)[A-Za-z_]\w*"
    r"(?:(?P=sign)[A-Za-z_]\w*)*)"
    rf"(?P<of>(?:[ ][A-Za-z]\w*)?)[ ]*[:=]?[ ]*[\[(]?"
    rf"(?P<numbers>{_SINGLE}(?:(?:[ ]*[,/][ ]*|[ ]+){_SINGLE})+)[\])]?(?![\w.%/])",
    re.ASCII,
)
#: loss (train/val): 0.5 / 0.6
_OF_PHASES = re.compile(
    r"\b(\w+)[ ]\(((?:tr|val|te|dev|ev)[a-z]*/[a-z]+)\)(?=[ ]*[:=])", re.I | re.A
)
#: Accuracy (Loss): 0.51 (1.37)
_BESIDE = re.compile(
    rf"(?P<first>[A-Za-z_]\w*)[ ]\((?P<second>[A-Za-z_]\w*)\)(?P<sign>[ ]*[:=][ ]*)"
    rf"(?P<number>{_SINGLE})[ ]?\((?P<other>{_SINGLE})\)",
    re.ASCII,
)

_IDENTIFIER = re.compile(r"[A-Za-z]\w*", re.ASCII)
_OF_LIST = re.compile(_SINGLE)
_DIGIT = re.compile("[0-9]")
#: {"name": "loss", "data": {"step": 3, "value": 0.5}}
_KEYED = re.compile(
    r"""\b(?:name|key|metric|tag)["']?[ ]*[:=][ ]*["']?([A-Za-z][\w./-]*)["']?(,.*?)\bvalue"""
    r"""(?=["']?[ ]*[:=])"""
)
#: Loss 1: 0.5, Loss 2: 0.6
_NUMBERED = re.compile(
    rf"(?<![\w./])([A-Za-z]+[ ])?([A-Za-z]\w*)[ #]([0-9]{{1,2}})(?=[ ]*[:=][ ]*{_SINGLE})",
    re.ASCII,
)

#: losses: [0.5, 0.6], or with a bar behind it | loss: 0.5, 0.6 |
_LIST = re.compile(
    rf"(?<![\w./])(?P<name>[A-Za-z][\w/.-]*)(?P<sign>[\"']?[ ]*[:=][ ]*)(?P<bracket>\[)?"
    rf"(?P<numbers>[\"']?{_SINGLE}[\"']?(?:,[ ]*[\"']?{_SINGLE}[\"']?){{1,15}})"
    r"(?(bracket)\]|[ ]*(?=\|))",
    re.ASCII,
)

#: loss: 0.5 0.6 0.7, up to the next name
_SPACED_LIST = re.compile(
    rf"(?<![\w./])(?P<name>[A-Za-z][\w/.-]*)(?P<sign>[ ]*[:=][ ]*)"
    rf"(?P<numbers>{_SINGLE}(?:[ ]{_SINGLE}){{2,9}})(?=[ ]*(?:\||$|[A-Za-z]\w*[ ]*[:=]))",
    re.ASCII,
)

#: Parts of the loss of detectors, whose tables do not say that they are losses.
_LOSS_PARTS = frozenset(
    "box obj cls dfl seg pose kobj total giou iou lbox lobj lcls l1 mask theta "
    "angle landmark".split()
)

#: Columns of spaCy and Vowpal Wabbit, each with what is beside it.
_COLUMNS = {
    "E": vocabulary.Meaning("epoch", "counter"),
    "#": vocabulary.Meaning("step", "counter"),
    "counter": vocabulary.Meaning("step", "counter"),
    "last": vocabulary.Meaning("last_loss", "loss"),
}
_BESIDE_LOSS = {"E": {"#"}, "#": {"E"}, "counter": {"last"}, "last": {"counter"}}
#: Before a header that is a comment: #  step  rmse_val  rmse_trn
_REMARKS = frozenset(("note", "notes", "comment", "remark"))
_COMMENT = re.compile(r"^#[ ]*(?=(?:epoch|step|iter)\b)", re.IGNORECASE)
#: Instead of the first column of a table with a metric in each row: |  | train | test |
_NAMES = ""

#: Name, number as float() reads it, and unit.
Cell = tuple[vocabulary.Meaning, str, str]


def exponent(number: str, suffix: str | None) -> str:
    """Return what a suffix stands for, "e3" for k; "" if the number has an exponent."""
    return SCALES[suffix] if suffix and "e" not in number.lower() else ""


def header(text: str, above: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of a table's columns; () if they do not look like those of metrics.

    Args:
        above: the columns of the line above, which may be the beginning of their names.
    """
    if "|" in text and len(above) > 2:
        below = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(below) == len(above) and "" in below:
            return tuple(
                f"{first} {second}".strip() for first, second in zip(above, below, strict=True)
            )
    text = _COMMENT.sub("", text.strip(_BORDERS))
    cells = _CELL_END.split(text)
    columns = [cell for cell in cells if training_phases.last_phase([cell], None) is not None]
    if "|" in text and len(cells) - 1 <= len(columns) >= 2:
        return (_NAMES, *columns)
    # Only some columns may be more than one blank apart.
    for names in (cells, text.split()) if len(cells) > 2 else (text.split(),):
        known = [found for found in map(_meaning, names, [names] * len(names)) if found is not None]
        kinds = {each.kind for each in known}
        # Other words with a counter and a loss among them are names that we do not know.
        is_most = 2 * len(known) >= len(names) or (
            "counter" in kinds and not any(" " in name for name in names)
        )
        # The names of the losses may be in the next line.
        is_begun = "|" in text and sum(each.kind == "counter" for each in known) > 1
        if 2 <= len(known) and len(names) <= _MAX_COLUMNS and is_most:
            return tuple(names) if kinds & vocabulary.STRONG or is_begun else ()
    # Of metrics that we do not know: gen, nevals, avg
    is_table = _is_counter(cells[0]) and 2 < len(cells) <= _MAX_COLUMNS and ", " not in text
    return tuple(cells) if is_table and all(map(_IDENTIFIER.fullmatch, cells)) else ()


def _is_counter(column: str) -> bool:
    found = vocabulary.meaning(column)
    return found is not None and found.kind == "counter"


def listed(text: str) -> str:
    """Return the text with each number behind its name: `a,b 0.5 0.6` becomes `a: 0.5, b: 0.6`."""
    if "/" in text:
        text = _OF_PHASES.sub(r"\2 \1", text)
    text = _LISTED.sub(_paired, text) if "," in text or "/" in text else text
    if "," in text and (of_list := _LIST.search(text)) and _DIGIT.search(text, 0, of_list.start()):
        # A list that is first in a line is the history of a finished training.
        text = _LIST.sub(_unlisted, text)
    if "oss:" in text or "oss =" in text or "oss=" in text:
        text = _SPACED_LIST.sub(_unlisted, text)
    if "value" in text:
        text = _KEYED.sub(r"\2\1", text)
    if " 1:" in text or " 1 " in text or " 1=" in text:
        text = _with_joined_numbers(text)
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


def _is_result(name: str) -> bool:
    found = vocabulary.meaning(name)
    return found is not None and found.kind in ("loss", "score")


def _unlisted(match: re.Match[str]) -> str:
    numbers = _OF_LIST.findall(match["numbers"])
    if not _is_result(match["name"]) or not all("." in number for number in numbers):
        return match[0]
    return ", ".join(
        f"{_numbered(match['name'], place)}: {number}" for place, number in enumerate(numbers, 1)
    )


def _numbered(name: str, place: int) -> str:
    return name if place == 1 else f"{name}_{place}"


def _with_joined_numbers(text: str) -> str:
    """Return the text with `loss_2` for `loss 2` if several losses are numbered."""
    numbered = [each for each in _NUMBERED.finditer(text) if _is_result(each[2])]
    if len({each[3] for each in numbered}) < 2:
        return text
    # In "Loss 1: 0.5, Test Loss 1: 0.6, Loss 2: 0.7" the phase is not that of the next loss.
    has_phases = len({_phase_before(each) is None for each in numbered}) > 1

    def joined(match: re.Match[str]) -> str:
        before, name, number = match.groups(default="")
        if not _is_result(name):
            return match[0]
        phase = "train " if has_phases and _phase_before(match) is None else ""
        return f"{before}{phase}{name}_{number}"

    return _NUMBERED.sub(joined, text)


def _phase_before(match: re.Match[str]) -> str | None:
    return training_phases.last_phase([(match[1] or "").strip()], None)


def _both(match: re.Match[str]) -> str:
    if vocabulary.meaning(match["second"]) is None:
        return match[0]
    return f"{match['first']}: {match['number']}, {match['second']}: {match['other']}"


def _meaning(column: str, columns: Sequence[str]) -> vocabulary.Meaning | None:
    """Return what a column contains; beside other parts of a loss, `box` is one, too."""
    # box, or box_oo of several boxes
    column = _NOTE.sub(lambda note: " time" if note[1] == "time" else "", column)
    if column in _BESIDE_LOSS and not _BESIDE_LOSS[column].isdisjoint(columns):
        return _COLUMNS[column]
    parts = {each.partition("_")[0] for each in columns if "loss" not in each}
    if column.partition("_")[0] in parts & _LOSS_PARTS and len(_LOSS_PARTS & parts) > 1:
        return vocabulary.Meaning(f"{column}_loss", "loss")
    return vocabulary.last_meaning(column, explicit="loss" in column.lower())


def row(text: str, columns: Sequence[str]) -> tuple[list[Cell], str]:
    """Return the cells of known columns, else of all, and the progress bar behind the row.

    ([], "") if the text is no row of this table: another number of cells, no metric, or a counter
    column without a number.
    """
    text, *bars = _BAR.split(text, maxsplit=1)
    text = text.strip(_BORDERS)
    words = " ".join(columns).split()
    for names, texts in (
        (columns, _CELL_END.split(text)),
        (columns, text.split()),
        (columns, _WIDE_END.split(text)),
        # Only some columns are more than one blank apart.
        (words, text.split()),
        # The last column is empty.
        (columns[:-1] if columns[-1].lower() in _REMARKS else columns, text.split()),
    ):
        if len(texts) != len(names) or any(map(_TWO_NUMBERS.fullmatch, texts)):
            continue
        if columns[0] == _NAMES:
            names = [f"{phase} {texts[0]}" for phase in columns[1:]]
            texts = texts[1:]
        numbers = sum(_NUMBER.search(cell) is not None or cell[:1] == "[" for cell in texts)
        is_text = vocabulary.last_meaning(names[0]) and not _NUMBER.match(texts[0])
        if is_text or 2 * numbers < len(names):
            continue
        cells: list[Cell] = []
        phase = training_phases.last_phase(texts, "")
        for column, cell in zip(names, texts, strict=True):
            found, number = _meaning(column, names), _NUMBER.search(cell)
            if found is not None and cell[:1] == "[":
                listed = enumerate(_OF_LIST.findall(cell), 1)
                cells += [
                    (found._replace(name=_numbered(found.name, place)), each, "")
                    for place, each in listed
                ]
                continue
            if found is not None and number is not None:
                unit, value = number[2] or "", number[1].replace(",", "")
                if found.kind in ("rate", "counter") and unit in SCALES:
                    # 31.26 M
                    unit, value = "", value + exponent(value, unit)
                if phase and found.kind in ("loss", "score"):
                    found = found._replace(name=training_phases.in_phase(found.name, phase))
                cells.append((found, value, unit))
            elif found is not None and found.kind == "counter":
                break
        else:
            if vocabulary.STRONG.intersection(found.kind for found, _, _ in cells):
                return cells, "".join(bars)
            unknown = [
                (vocabulary.Meaning(vocabulary.snake(column), "other"), cell, "")
                for column, cell in zip(names, texts, strict=True)
                if _meaning(column, names) is None
                and "." in cell
                and _OF_LIST.fullmatch(cell)
                and not vocabulary.is_other(vocabulary.snake(column), is_identifier=True)
            ]
            if unknown and _is_counter(names[0]):
                return [*cells, *unknown], "".join(bars)
    return [], ""
