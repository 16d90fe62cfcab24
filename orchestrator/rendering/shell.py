"""Values as words of a shell command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from orchestrator import errors

#: C0, DEL, C1, the two Unicode line separators, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def quote(value: object) -> str:
    """Quote a value, or each item of a list; raises TemplateError for a control character."""
    words: Iterable[object] = value if isinstance(value, list | tuple) else [value]
    return " ".join(shlex.quote(one_line(word)) for word in words)


def one_line(value: object) -> str:
    """Return the value as text; raises TemplateError for a control character."""
    text = str(value)
    if bad := _CONTROL.search(text):
        raise errors.TemplateError(f"control character {bad[0]!a} in {text!a}: remove it")
    return text


def delimiter(word: str, text: str) -> str:
    """Return a here-document's end marker that does not occur in its text."""
    while word in text:
        word += "_"
    return word
