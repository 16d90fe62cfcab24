"""Parses lines whose names differ from line to line: JSON, a printed dict, name=number pairs."""

from __future__ import annotations

import json
import re
from typing import TypeAlias

from orchestrator.patterns import numbers, records, regexes

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
# Not a part of a number, such as 8 of 8,420 or 12 of 12:30.
_LOOSE = re.compile(
    rf"(?:^|(?<=[\s,|;(\[{{]))([A-Za-z_][\w./@-]*(?: [A-Za-z_][\w./@-]*){{0,2}})[ ]?[:=][ ]{{0,8}}"
    rf"({regexes.THOUSANDS}|{regexes.NUMBER})(?![0-9.:]|,[0-9])"
    rf"({_UNIT}|[ ](?:[A-Za-z]+/[A-Za-z]+|ms|sec|[KMGT]i?B|%))?(?=$|[\s,|;)\]}}/(])",
    re.ASCII,
)
# A rate without a name: 12,345 tok/s.
_RATE = re.compile(
    rf"(?<![\w.])({regexes.THOUSANDS}|{regexes.NUMBER})[ ]?"
    r"((tok|tokens|samples?|images?|imgs?|examples?|seqs?|sequences|sentences|frames)"
    r"/s(?:ec(?:ond)?)?)(?![\w/])",
    re.ASCII,
)
# Counters, which often have no sign between name and number: Epoch 4/10, [Epoch 4], iter #3.
_COUNTER = re.compile(
    r"(?<![\w/])(epoch|step|iter|iteration)[ ]?[#\[]?[ ]{0,8}([0-9]{1,12})(?![\w.=%]|:\S|,[0-9])",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]{2,}")
#: Numbers in a line about a checkpoint are those of its training.
_CHECKPOINT = re.compile(r"\b(?:load|resum|restor)(?:e|ed|ing)?\b|\bsav(?:ed|ing)\b", re.IGNORECASE)
#: A line of metrics has few words that are not names: train, eta, min. Prose has more.
_MAX_OTHER_WORDS = 4


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
    """Return name=number and name: number from anywhere in a text; None if the rest is prose."""
    fields = [
        (match.start(), (match[1], match[2].replace(",", ""), (match[3] or "").strip()))
        for match in _LOOSE.finditer(text)
    ]
    fields += [(match.start(), (match[1], match[2], "")) for match in _COUNTER.finditer(text)]
    rest = _COUNTER.sub(" ", _LOOSE.sub(" ", text))
    for match in _RATE.finditer(rest):
        key = "tokens_per_second" if match[3].startswith("tok") else "throughput"
        fields.append((len(text), (key, match[1].replace(",", ""), match[2])))
    if len(_WORD.findall(rest)) > _MAX_OTHER_WORDS or _CHECKPOINT.search(rest):
        return None
    return [field for _, field in sorted(fields)]


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
