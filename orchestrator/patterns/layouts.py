"""Lines with the same names in the same order: their numbers in one go.

A program prints the same names with other numbers, line after line. From a line whose pairs were
taken apart one by one, an expression is made that fits such lines alone of which the same pairs
would come out; what it does not fit is taken apart as before.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from orchestrator.patterns import fields, records

#: Numbers that float() takes as they are, once their commas are gone.
_NUMBER = (
    r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?)"
)
#: What may stand in a number, or make one longer.
_OF_NUMBERS = frozenset("0123456789.,+-eE")
_VALUE = re.compile(rf"({_NUMBER})( ?(?:[A-Za-z%][A-Za-z%/_^*-]*)?)(\([^() ]{{0,40}}\))?", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][^\s:=|]*(?: [^\s:=|]+){0,4} ?", re.ASCII)


class Layout(NamedTuple):
    """Names, and an expression whose groups are their numbers."""

    expression: re.Pattern[str]
    #: key and unit of each
    keys: tuple[tuple[str, str], ...]

    def read(self, text: str) -> list[float] | None:
        """Return the numbers of a text with these names; None for another one."""
        found = self.expression.fullmatch(text)
        if found is None:
            return None
        return [
            float(number.replace(",", "") if "," in number else number) for number in found.groups()
        ]


def learn(kind: records.LineKind, text: str) -> Layout | None:
    """Return the layout of a text of Form.PAIRS; None where one could tell other pairs."""
    separator, between = kind.separator, kind.between
    mark = separator.strip(" ")
    if not separator or not between.strip() or set(mark) & _OF_NUMBERS:
        return None
    parts, keys = [], []
    for item in fields.items_of(text, separator, between):
        key, sign, value = item.partition(between)
        found = _VALUE.fullmatch(value.strip(" "))
        strange = not sign or found is None or not _KEY.fullmatch(key.strip(" "))
        if strange or found is None or (mark and mark in item):
            return None
        _, unit, average = found.groups()
        if unit[:1] in _OF_NUMBERS or unit == " ":
            return None
        tail = r"\([^() |]{0,40}\)" if average else ""
        if average and mark and mark != "|":
            return None
        parts.append(f"{re.escape(key + sign)} *({_NUMBER}){re.escape(unit)}{tail}")
        keys.append((key.strip(), unit.strip()))
    joint = f" *{re.escape(separator)}" if mark else f"{re.escape(separator)} *"
    # Blanks around an item do not count.
    expression = re.compile(joint.join(parts) + " *", re.ASCII)
    layout = Layout(expression, tuple(keys))
    known = fields.read(kind, text)
    told = [] if known is None else [(field.key, field.unit) for field in known]
    return layout if told == keys and expression.fullmatch(text) else None
