"""Names and numbers that stand in a line in one of the common forms. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from orchestrator.patterns import records


class Field(NamedTuple):
    """A name and what stands behind it."""

    key: str
    #: as it is printed, without quotes and unit
    text: str
    #: "" where none stands there
    unit: str


#: More of them, or deeper, no trainer prints in a line.
_MOST = 500
_DEEPEST = 4

# Possessive, or a long run of digits could be cut in two in as many ways as it has digits.
_NUMBER = (
    r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
    r"|[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)"
)
_UNIT = r"[A-Za-z%][A-Za-z0-9%/_^*-]{0,15}"
_THOUSANDS = r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
#: 0.5, 0.5 (0.6), 12ms, 12 images/sec, 3.5%, 5/100, 12,345
_VALUE = re.compile(
    rf"({_THOUSANDS}|{_NUMBER}) ?({_UNIT})?(?:[ ]*\([^()]{{0,40}}\))?(?:/ *[0-9]+)?", re.ASCII
)
_BLANK_BETWEEN = re.compile(rf"([A-Za-z]\S*(?: \S+){{0,4}}?) +((?:{_NUMBER}).*)", re.ASCII)
# tensor(0.5), np.float64(0.5) and the like are what a dict of unconverted numbers prints.
_DICT_ITEM = re.compile(
    rf"""\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*:\s*
    (?: (?:(?:torch\.)?tensor|(?:np\.|numpy\.)?(?:float|int)[0-9]+|array)
        \(\s*({_NUMBER})\s*(?:,[^()]*)?\)
      | ({_NUMBER}) | '([^'\\]*)' | "([^"\\]*)" | True | False | None
      | \[[^][{{}}]*\] | \([^()]*\) | \{{[^{{}}]*\}}
    )\s*(?:,|(?=\}}))""",
    re.ASCII | re.VERBOSE,
)
#: Groups of an item of which one is its value.
_DICT_VALUES = range(3, 7)
# Not a part of a number: 8 of 8,420, or 12 of 12:30.
_LOOSE = re.compile(
    rf"(?:^|(?<=[\s,|;(\[{{]))([A-Za-z_][\w./@-]*(?: [A-Za-z_][\w./@-]*){{0,2}})[ ]?[:=][ ]{{0,8}}"
    rf"({_THOUSANDS}|{_NUMBER})(?![0-9.:]|,[0-9])"
    rf"({_UNIT}|[ ](?:[A-Za-z]+/[A-Za-z]+|ms|sec|[KMGT]i?B|%))?(?=$|[\s,|;)\]}}/(])",
    re.ASCII,
)
# 12,345 tok/s, where no name stands before it.
_RATE = re.compile(
    rf"(?<![\w.])({_THOUSANDS}|{_NUMBER})[ ]?"
    r"((tok|tokens|samples?|images?|imgs?|examples?|seqs?|sequences|sentences|frames)"
    r"/s(?:ec(?:ond)?)?)(?![\w/])",
    re.ASCII,
)
# Epoch 4/10, [Epoch 4], step 100, iter #3: what counts has no sign in front of it, often.
_COUNTER = re.compile(
    r"(?<![\w/])(epoch|step|iter|iteration)[ ]?[#\[]?[ ]{0,8}([0-9]{1,12})(?![\w.=%]|:\S|,[0-9])",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]{2,}")
#: What a checkpoint was made of is no news when it is loaded or saved.
_OF_BEFORE = re.compile(r"\b(?:load|resum|restor)(?:e|ed|ing)?\b|\bsav(?:ed|ing)\b", re.IGNORECASE)
#: A line of numbers has some words that are no names: train, eta, min. Prose has more.
_MOST_OTHER_WORDS = 4


class _Number(str):
    """A number of a JSON text, as it is written there."""


def read(kind: records.LineKind, text: str) -> list[Field] | None:
    """Return the fields of a text in the order they stand; None where it has not this form."""
    if kind.form is records.Form.JSON:
        return _json(text)
    if kind.form is records.Form.DICT:
        return _dict(text)
    if kind.separator:
        return list(_pairs(text, kind.separator, kind.between))
    return _loose(text)


def paired(read: list[Field], pair: tuple[str, ...]) -> list[Field]:
    """Return {"key": "loss", "value": 0.5} as {"loss": 0.5}; other fields stay."""
    found = {field.key: field for field in read}
    name, value = found.get(pair[0]), found.get(pair[1])
    others = [field for field in read if field.key not in pair]
    return others if name is None or value is None else [value._replace(key=name.text), *others]


def _json(text: str) -> list[Field] | None:
    try:
        read = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict):
        return None
    found: list[Field] = []
    _flatten("", read, found, 0)
    return found


def _flatten(path: str, value: object, found: list[Field], depth: int) -> None:
    if len(found) >= _MOST or depth > _DEEPEST:
        return
    if isinstance(value, dict):
        items: list[tuple[str, object]] = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        items = [(str(place), inner) for place, inner in enumerate(value)]
    else:
        if isinstance(value, str):
            found.append(Field(path, str(value), ""))
        return
    for key, inner in items:
        _flatten(f"{path}.{key}" if path else key, inner, found, depth + 1)


def _dict(text: str) -> list[Field] | None:
    found = dict_items(text)
    return None if found is None else [field for field, _ in found]


def dict_items(text: str) -> list[tuple[Field, tuple[int, int]]] | None:
    """Return the items of a printed dict, and where the texts of their values begin and end.

    None unless every bit of it is understood.
    """
    if not text.startswith("{") or not text.endswith("}"):
        return None
    place = 1
    found: list[tuple[Field, tuple[int, int]]] = []
    while text[place:].strip() != "}":
        item = _DICT_ITEM.match(text, place)
        if item is None or len(found) >= _MOST:
            return None
        place = item.end()
        key, other = item.group(1, 2)
        for group in _DICT_VALUES:
            if item[group]:
                field = Field(key if key is not None else other, item[group], "")
                found.append((field, item.span(group)))
    return found


def _loose(text: str) -> list[Field] | None:
    """Return name=number and name: number wherever they stand; None where the rest is prose."""
    found = [
        (place.start(), Field(place[1], place[2].replace(",", ""), (place[3] or "").strip()))
        for place in _LOOSE.finditer(text)
    ]
    found += [(place.start(), Field(place[1], place[2], "")) for place in _COUNTER.finditer(text)]
    rest = _COUNTER.sub(" ", _LOOSE.sub(" ", text))
    for place in _RATE.finditer(rest):
        key = "tokens_per_second" if place[3].startswith("tok") else "throughput"
        found.append((len(text), Field(key, place[1].replace(",", ""), place[2])))
    if len(_WORD.findall(rest)) > _MOST_OTHER_WORDS or _OF_BEFORE.search(rest):
        return None
    return [field for _, field in sorted(found)]


def _pairs(text: str, separator: str, between: str) -> Iterator[Field]:
    for item in items_of(text, separator, between):
        # "loss: 10.9 | lr 6e-4": some print one of many without the sign.
        if between == " " or between not in item:
            parted = _BLANK_BETWEEN.fullmatch(item.strip())
            key, value = parted.groups() if parted else ("", "")
        else:
            key, _, value = item.partition(between)
        key, value = key.strip(), value.strip()
        found = _VALUE.fullmatch(value) if key else None
        if found is not None:
            yield Field(key, found[1].replace(",", ""), found[2] or "")


def items_of(text: str, separator: str, between: str) -> list[str]:
    """Return the items of a text of pairs."""
    if separator.strip(" "):
        return text.split(separator)
    # Numbers are padded with blanks, too: what begins an item has the sign behind it.
    sign = re.escape(between.strip() or " ")
    return re.split(rf"(?<! ){separator} *+(?=[A-Za-z_]\S*(?: \S+){{0,4}}? ?{sign})", text)
