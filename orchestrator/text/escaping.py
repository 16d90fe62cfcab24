"""Escaping of text that others wrote, for terminals, mail and chats.

Such text is in job logs, Slurm, git, file names and the database. Characters that act on what
displays them are written as escapes (`\\x1b`). Each character is escaped separately and none
is removed, so no new sequence can form, and escaping twice changes nothing.
"""

from __future__ import annotations

import codecs
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
#: What commands write to a terminal by themselves: colours, erasing, and moves of the cursor.
_COLOURS = re.compile(r"(\x1b\[[0-9;]{0,32}[A-HJKfm]|\x1b\[\?25[hl]|\r)")
#: The beginning of such a sequence, of which the rest has not come yet.
_UNFINISHED = re.compile(r"\x1b(?:\[\??[0-9;]{0,32})?\Z")
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


class Terminal:
    """What a program on another computer prints for a terminal: its colours stay.

    All else is escaped, such as titles, the clipboard, and questions that a terminal answers as if
    somebody typed.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rest = ""

    def feed(self, data: bytes, *, is_last: bool = False) -> bytes:
        """Return the bytes to write now; the beginning of a sequence is kept until its rest comes.

        is_last: nothing follows.
        """
        text = self._rest + self._decoder.decode(data, is_last)
        begun = None if is_last else _UNFINISHED.search(text)
        self._rest = begun[0] if begun else ""
        parts = _COLOURS.split(text.removesuffix(self._rest))
        parts[::2] = map(lines, parts[::2])
        return "".join(parts).encode()


def _is_plain(text: str) -> bool:
    # Some printable letters show nothing, so only ASCII is certainly plain.
    return text.isascii() and text.isprintable()


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
