"""Parses lines whose names differ from line to line: JSON, a printed dict, name=number pairs."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from orchestrator.patterns import general, numbers, records, regexes

#: Key, value as it is printed without quotes and unit, and unit. A named tuple takes longer.
Field: TypeAlias = tuple[str, str, str]

#: Limits for a line of JSON.
_MAX_FIELDS = 500
_MAX_DEPTH = 4

_UNIT = r"[A-Za-z%][A-Za-z0-9%/_^*-]{0,15}"
#: 0.5, 0.5 (0.6), 12ms, 12 images/sec, 3.5%, 5/100, 12,345
_VALUE = re.compile(
    rf"({regexes.THOUSANDS}|{regexes.NUMBER}) ?({_UNIT})?(?:[ ]*\([^()]{{0,40}}\))?(?:/ *[0-9]+)?",
    re.ASCII,
)
#: Between items: loss:0.5,epoch mean:0.6 but not 1,234
_COMMA = re.compile(r", |,(?=[A-Za-z_])")
_BLANK_BETWEEN = re.compile(rf"([A-Za-z]\S*(?: \S+){{0,4}}?) +((?:{regexes.NUMBER}).*)", re.ASCII)
# A dict of unconverted numbers prints tensor(0.5), np.float64(0.5) and the like.
_DICT_ITEM = re.compile(
    rf"""\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*:\s*
    (?: (?:(?:torch\.)?tensor|(?:np\.|numpy\.)?(?:float|int)[0-9]+|array)
        \(\s*({regexes.NUMBER})\s*(?:,[^()]*)?\)
      | ({regexes.NUMBER}) | '([^'\\]*)' | "([^"\\]*)" | True | False | None
      | \[[^][{{}}]*\] | \([^()]*\) | \{{[^{{}}]*\}}
    )\s*(?:,|(?=\}}))""",
    re.ASCII | re.VERBOSE,
)


def parse(kind: records.LineKind, text: str) -> list[Field] | None:
    """Return the fields of a text in their order; None if it does not have this form."""
    if kind.form == "json":
        fields = _json(text)
    elif kind.form == "dict":
        fields = _dict(text)
    elif kind.separator:
        fields = _pairs(text, kind.separator, kind.between)
    else:
        fields = _loose_pairs(text)
    if fields is None or not kind.pair:
        return fields
    # {"key": "loss", "value": 0.5} means {"loss": 0.5}.
    by_key = {field[0]: field for field in fields}
    name, value = by_key.get(kind.pair[0]), by_key.get(kind.pair[1])
    rest = [field for field in fields if field[0] not in kind.pair]
    return rest if name is None or value is None else [(name[1], *value[1:]), *rest]


def _json(text: str) -> list[Field] | None:
    # Numbers stay text: 1e999 must not become infinity.
    try:
        data = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    fields: list[Field] = []
    _flatten("", data, fields, 0)
    return fields


def _flatten(path: str, value: object, fields: list[Field], depth: int) -> None:
    """Append the strings and numbers in a JSON value; inner names are joined by a dot."""
    if len(fields) >= _MAX_FIELDS or depth > _MAX_DEPTH:
        return
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            _flatten(f"{path}.{key}" if path else str(key), inner, fields, depth + 1)
    elif isinstance(value, str):
        fields.append((path, value, ""))


def _dict(text: str) -> list[Field] | None:
    """Return the items of a printed dict; None unless all of it is understood."""
    if not text.startswith("{") or not text.endswith("}"):
        return None
    position = 1
    fields: list[Field] = []
    while text[position:].strip() != "}":
        item = _DICT_ITEM.match(text, position)
        if item is None or len(fields) >= _MAX_FIELDS:
            return None
        position = item.end()
        single_quoted, double_quoted, *values = item.groups()
        value = next(filter(None, values), None)
        if value is not None:
            key = double_quoted if single_quoted is None else single_quoted
            fields.append((key, value, ""))
    return fields


def _loose_pairs(text: str) -> list[Field] | None:
    """Return names and numbers from anywhere in a text; None if it is not about metrics."""
    reading = general.read(text)
    return reading and [
        (value.printed_name or value.meaning.name, value.number, "")
        if value.meaning.kind == "counter"
        else (value.printed_name or value.meaning.name, value.number, value.unit)
        for value in reading.values
    ]


def _pairs(text: str, separator: str, between: str) -> list[Field]:
    if separator == ", ":
        items = _COMMA.split(text)
    elif separator.strip(" "):
        items = text.split(separator)
    else:
        # Numbers may be padded with blanks, too: a new item begins with a name and the sign.
        sign = re.escape(between.strip() or " ")
        start = rf"(?<! ){separator} *+(?=[A-Za-z_]\S*(?: \S+){{0,4}}? ?{sign})"
        items = re.split(start, text)
    fields = []
    for item in items:
        # "loss: 10.9 | lr 6e-4": in some items the sign is missing. Bars print loss:0.5, too.
        if between == "=" and "=" not in item and ":" in item:
            key, _, value = item.partition(":")
        elif between == " " or between not in item:
            parts = _BLANK_BETWEEN.fullmatch(item.strip())
            key, value = parts.groups() if parts else ("", "")
        else:
            key, _, value = item.partition(between)
        key, value = key.strip(), value.strip().rstrip(",")
        if not value.strip(numbers.CHARACTERS):
            # Most values are plain numbers, which need no regex.
            fields.append((key, value, ""))
            continue
        match = _VALUE.fullmatch(value) if key else None
        if match is not None:
            number, unit = match.groups()
            fields.append((key, number.replace(",", ""), unit or ""))
    return fields
