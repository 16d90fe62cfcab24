"""Escaping of control characters."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.text import escaping, formats
from orchestrator.toml import values

#: Every kind of character, and those that make up escape sequences more often.
TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b[]2J;m\x07\\\x9b\x9d\x9c\r\n\t\0\u202e\u2028"))
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü € 日 👩\u200d💻", "plain ü € 日 👩\u200d💻"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x1b[\x1b[31m2J", r"\x1b[\x1b[31m2J"),
        ("\x1b]52;c;eA==\x07", r"\x1b]52;c;eA==\x07"),
        ("\x9b31m\x7f\x85", r"\x9b31m\x7f\x85"),
        ("a\x00b\bc", r"a\x00b\x08c"),
        ("a\u202eb\u2066c\u2028d\u200be\ufeff", r"a\u202eb\u2066c\u2028d\u200be\ufeff"),
        ("\udc9b31m", r"\udc9b31m"),
        ("\U000e0041", r"\U000e0041"),
        ("train\u3164\u034f", r"train\u3164\u034f"),
        ("a\U000e0148\U0001d173", r"a\U000e0148\U0001d173"),
        ("\u2764\ufe0f", "\u2764\ufe0f"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert [escaping.visible(text), escaping.one_line(text), escaping.lines(text)] == [shown] * 3


def test_lines_and_tabs() -> None:
    assert escaping.visible("a\r\n\tb") == r"a\r\n\tb"
    assert escaping.one_line("a\r\n\tb") == "a   b"
    assert escaping.lines("a\r\n\tb") == "a\\r\n\tb"


def acting(text: str) -> set[str]:
    """Return the characters of the text that are no letters, signs or spaces of any script."""
    return {item for item in text if unicodedata.category(item) in ("Cc", "Cs", "Zl", "Zp")}


@given(TEXTS)
def test_nothing_acts_and_twice_is_as_once(text: str) -> None:
    for escape, kept in (
        (escaping.visible, set()),
        (escaping.one_line, set()),
        (escaping.lines, {"\n", "\t"}),
    ):
        shown = escape(text)
        assert acting(shown) <= kept
        assert values.forbidden_character(shown, multi_line=True) == ""
        assert escape(shown) == shown


@given(TEXTS)
def test_json_is_unchanged_and_printable(text: str) -> None:
    made = formats.json_text({"text": text})
    assert json.loads(made) == {"text": text}
    assert made.isascii() and made.isprintable()


@given(TEXTS)
def test_csv_starts_no_formula(text: str) -> None:
    made = formats.csv_text([[text, 1.5, -2]])
    assert acting(made) <= {"\n", "\t"}
    ((cell, *numbers),) = csv.reader(io.StringIO(made, newline=""))
    assert numbers == ["1.5", "-2"]
    assert not cell.startswith(("=", "\t", "\r", "\n"))
    if cell.startswith(("+", "-")):
        float(cell)


def test_numbers_and_rows_are_no_formulas() -> None:
    rows = [
        ["-1.5", "+1", "-inf", "@7", "@7/@8"],
        ["-x", "+1+1", "@SUM(A1)", "\t=1", "\r=1", "\n1"],
    ]
    assert formats.csv_text(rows) == (
        "-1.5,+1,-inf,@7,@7/@8\n'-x,'+1+1,'@SUM(A1),'\t=1,'\\r=1,\"'\n1\"\n"
    )


def test_a_terminal_gets_colours_of_another_computer_and_nothing_else() -> None:
    colours = "\x1b[31mred\x1b[0m\x1b[2J\x1b[1;1H\r\x1b[?25l grün\n"
    sent = f"{colours}\x1b]52;c;eA==\x07\x1b[6n\x1bP+q\x1b\\\x9b6n\u202e".encode() + b"\xff\x1b["
    expected = (
        f"{colours}\\x1b]52;c;eA==\\x07\\x1b[6n\\x1bP+q\\x1b\\\\x9b6n\\u202e\\xff\\x1b[".encode()
    )
    for size in (1, 3, len(sent)):
        terminal = escaping.Terminal()
        pieces = [terminal.feed(sent[at : at + size]) for at in range(0, len(sent), size)]
        assert b"".join([*pieces, terminal.feed(b"", is_last=True)]) == expected
