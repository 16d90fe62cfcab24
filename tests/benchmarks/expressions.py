"""The shipped patterns as extended regular expressions for grep."""

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


#: A number as most programs print it, and a unit or the like behind it.
_NUMBER = r"[-+]?([0-9][0-9,]*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?[^[:space:]]*"
#: What a `form` reads where a kind's own regex says no more than "anything", as near as an extended
#: regular expression can say it: one that a line cannot fit without a name and its number. That
#: braces pair up, and which names a kind needs, is beyond them.
_DICT = rf"\{{(.*[,{{] *)?'[^']*': *'?({_NUMBER}|[a-z.0-9]+\({_NUMBER}).*\}}"
_JSON = rf'\{{(.*[,{{] *)?"[^"]*": *({_NUMBER}|").*\}}'
_ANYTHING = (".*", r"\{.*\}")


def shipped() -> list[str]:
    """Return an expression for each kind of line of the shipped patterns.

    It fits the whole line, as a pattern's does; what a launcher or a logger puts before it is any
    text that ends as such prefixes do. Generic patterns are left out: they count only where no
    other finds anything.
    """
    parser: Any = importlib.import_module("re._parser")
    result = []
    for pattern in patterns.load_shipped():
        for kind in pattern.lines:
            if pattern.generic:
                continue
            tree = parser.parse(kind.source, re.ASCII)
            fields = tree.state.groupdict.get("fields")
            read = _fields(kind.form, kind.separator, kind.between)
            regex = "".join(
                read
                if fields is not None and _is_open(name, argument, fields)
                else _element(str(name), argument)
                for name, argument in tree
            )
            result.append(rf"^(.*[] :>|-])?({regex})[[:blank:]]*$")
    return result


def _is_open(name: Any, argument: Any, fields: int) -> bool:
    """Tell whether an element is the group of the fields, and asks for nothing."""
    if str(name) != "SUBPATTERN" or argument[0] != fields:
        return False
    return _extended(argument[3]) in _ANYTHING


def _fields(form: str | None, separator: str, between: str) -> str:
    if form == "dict":
        return _DICT
    if form == "json":
        return _JSON
    before, sign = ("".join(map(_literal, text)) for text in (separator, between))
    return rf"(.*{before or '[[:space:],]'})? *[A-Za-z_].*{sign} *{_NUMBER}.*"


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
        case "GROUPREF":
            return ".*"
        case _:
            # Grep has no look-around: without it, more lines match.
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
