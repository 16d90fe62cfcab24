"""Text from outside -> text that a terminal, a mail reader or a chat can only display. Pure.

Job logs, Slurm, git, file names and the database hold text that others wrote. Characters that act
on what displays them are written as escapes (`\\x1b`). Each character is escaped by itself and none
is removed, so nothing can come together again, and escaping twice changes nothing.
"""

from __future__ import annotations

import re

#: DEL, C1, bytes that are not UTF-8 (surrogates), and characters that reorder or hide text or end a
#: line for some readers. Joiners (U+200C, U+200D) stay: scripts and emoji need them.
_ACTING = (
    r"\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e007f"
)
_ANY = re.compile(rf"[\x00-\x1f{_ACTING}]")
_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_ACTING}]")
_SPACES = str.maketrans("\t\n\r", "   ")


def visible(text: str) -> str:
    """Return the text with every such character escaped, newline and tab too."""
    return text if text.isprintable() else _ANY.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text for a cell, a field or a heading: tabs and line ends become spaces."""
    return text if text.isprintable() else visible(text.translate(_SPACES))


def lines(text: str) -> str:
    """Return a text of several lines: newline and tab stay."""
    return text if text.isprintable() else _IN_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
