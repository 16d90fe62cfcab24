"""The shipped patterns as extended regular expressions, for grep."""

from __future__ import annotations

import importlib
import re
from typing import Any

from orchestrator import patterns

_SPECIAL = frozenset("\\.[{()*+?^$|")
_CATEGORIES = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_SPACE": "[:space:]",
    "CATEGORY_WORD": "A-Za-z0-9_",
}
_ENDLESS = 2**31


def shipped() -> list[str]:
    """Return an expression for each kind of line of the shipped patterns.

    It fits the whole line, as a pattern's does; what a launcher or a logger puts before it is any
    text that ends as such prefixes do. Where a line's names and numbers stand in no fixed order,
    the regex says little, and the texts of which one must be in such a line stand for it. Generic
    patterns are left out: they count only where no other finds anything.
    """
    parser: Any = importlib.import_module("re._parser")
    found = []
    for pattern in patterns.load_shipped():
        for kind in pattern.lines:
            if pattern.generic:
                continue
            if kind.form is not None:
                found += ["".join(map(_literal, text)) for text in kind.contains]
                continue
            regex = _extended(parser.parse(kind.source, re.ASCII))
            found.append(rf"^(.*[] :>|-])?({regex})[[:blank:]]*$")
    return found


def _literal(character: str) -> str:
    return f"\\{character}" if character in _SPECIAL else character


def _extended(sequence: Any) -> str:
    return "".join(_element(str(operator), argument) for operator, argument in sequence)


def _element(name: str, argument: Any) -> str:
    match name:
        case "LITERAL":
            return _literal(chr(argument))
        case "NOT_LITERAL":
            return f"[^{chr(argument)}]"
        case "ANY":
            return "."
        case "IN":
            return _bracket(argument)
        case "SUBPATTERN":
            return f"({_extended(argument[3])})"
        case "ATOMIC_GROUP":
            return f"({_extended(argument)})"
        case "BRANCH":
            return f"({'|'.join(_extended(part) for part in argument[1])})"
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = argument
            single = len(repeated) == 1 and str(repeated[0][0]) != "MAX_REPEAT"
            inner = _extended(repeated) if single else f"({_extended(repeated)})"
            return inner + _times(int(least), int(most))
        case _:
            # Grep has no look-around: without it, more lines fit.
            return ""


def _times(least: int, most: int) -> str:
    if most >= _ENDLESS:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _bracket(items: Any) -> str:
    negated, members, last = "", "", ""
    for operator, argument in items:
        match str(operator):
            case "NEGATE":
                negated = "^"
            case "LITERAL" if chr(argument) == "]":
                members = "]" + members
            case "LITERAL" if chr(argument) in "^-":
                last = f"^{last}" if chr(argument) == "^" else f"{last}-"
            case "LITERAL":
                members += chr(argument)
            case "RANGE":
                members += f"{chr(argument[0])}-{chr(argument[1])}"
            case "CATEGORY" if str(argument) == "CATEGORY_NOT_SPACE":
                return "[^[:space:]]"
            case "CATEGORY":
                members += _CATEGORIES[str(argument)]
    if members + last == "^":
        return r"\^"
    return f"[{negated}{members}{last}]"
