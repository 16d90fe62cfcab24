"""Escaping of text that others wrote, for terminals, mail and chats.

Such text is in job logs, Slurm, git, file names and the database. Characters that act on what
displays them are written as escapes (`\\x1b`). Each character is escaped separately and none
is removed, so no new sequence can form, and escaping twice changes nothing.
"""

from __future__ import annotations

import re

#: DEL, C1, bytes that are not UTF-8 (surrogates), and characters that reorder or hide text, show
#: nothing, or end a line for some readers. Joiners (U+200C, U+200D) and the variation selectors of
#: the BMP stay: scripts and emoji need them.
_ACTING = (
    r"\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_ANY = re.compile(rf"[\x00-\x1f{_ACTING}]")
_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_ACTING}]")
_SPACES = str.maketrans("\t\n\r", "   ")


def visible(text: str) -> str:
    """Return the text with every such character escaped, including newline and tab."""
    return text if _is_plain(text) else _ANY.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text for a cell, a field or a heading: tabs and line ends become spaces."""
    return text if _is_plain(text) else visible(text.translate(_SPACES))


def lines(text: str) -> str:
    """Return a text of several lines: newline and tab stay."""
    return text if _is_plain(text) else _IN_LINES.sub(_escape, text)


def _is_plain(text: str) -> bool:
    # Some printable letters show nothing, so only ASCII is certainly plain.
    return text.isascii() and text.isprintable()


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
