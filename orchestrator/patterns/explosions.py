"""Regular expressions that can take for ever."""

from __future__ import annotations

import importlib
import re
from typing import Any


def may_explode(regex: re.Pattern[str]) -> bool:
    """Tell whether there is an endless repeat whose body is made of endless repeats alone.

    Such a body can be cut up in exponentially many ways (measured: (a+)+b takes 2 s for 25
    characters). Python's re has no time limit, and gives its parse tree only through a private
    module, whose forms a unit test holds on to.
    """
    parser: Any = importlib.import_module("re._parser")
    return _explosive(parser.parse(regex.pattern, regex.flags))


def _explosive(sequence: Any) -> bool:
    for operator, argument in sequence:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT") and _endless(argument) and _loose(argument[2]):
            return True
        if any(_explosive(inner) for inner in _inside(name, argument)):
            return True
    return False


def _endless(repeat: Any) -> bool:
    # Whatever its exact limit: a{0,1000} is as slow as a*.
    return int(repeat[1]) > 20


def _loose(sequence: Any) -> bool:
    """Tell whether a sequence holds an endless repeat, and nothing that has to be there."""
    endless = False
    for operator, argument in sequence:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            endless = endless or _endless(argument) or _loose(argument[2])
            if not _endless(argument) and int(argument[0]) > 0 and not _loose(argument[2]):
                return False
        elif name == "AT":
            continue
        else:
            inner = _inside(name, argument)
            if name not in ("SUBPATTERN", "BRANCH") or not any(_loose(part) for part in inner):
                return False
            endless = True
    return endless


def _inside(name: str, argument: Any) -> list[Any]:
    """Return the sequences within an element of the parse tree."""
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [argument[2]]
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part is not None]
    return []
