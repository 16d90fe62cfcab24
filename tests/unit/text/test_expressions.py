"""Users' expressions: catastrophic ones are stopped in time, others match like Python's re."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.text import expressions

#: With each of these, Python's re takes minutes to years on one of the lines.
CATASTROPHIC = (
    r"(a+)+$",
    r"(a|aa)+$",
    r"(?:a|aa)+$",
    r"(a|a?)+$",
    r"(.*a){20}",
    r"(\w+\s?)*$",
    r"x*x*x*x*y",
    r"(?P<loss>(?P<inner>a+)+)+$",
    r"(?:a{1,1000}){1,1000}$",
    r"(?:(?:a{1,1000}){1,1000}){1,1000}b",
    r"(a+)+\1$",
    r"(?=(a+)+b)a",
    r"(?:a|aa)+(?!b)$",
    r"(?>(?:a|aa)+$)",
    r"(?:[ab]{500}){2}z|" * 10 + "(?:a?){900}a{900}",
    "(" * 30 + "a" + ")+" * 30 + "$",
    "|".join("a" * count for count in range(1, 80)) + "$",
)
LINES = ("a" * 40 + "!", "a" * 4095 + "!", "x" * 4096, "a " * 2048 + "!", "ab" * 2048)


@pytest.mark.parametrize("source", CATASTROPHIC)
def test_a_catastrophic_expression_ends_on_each_line(source: str) -> None:
    expression = expressions.Expression(source)
    begun = time.process_time()
    for line in LINES:
        for method in (expression.fullmatch, expression.search, expression.finditer):
            try:
                method(line)
            except expressions.TooSlowError as error:
                assert str(error) == f"more than 0.05 s on a line of {len(line)} characters"
    # 15 calls, each of which may take the limit, or a tenth of a second by RE2.
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(a", "not a regular expression: missing ), unterminated subpattern"),
        ("a" * 100_000, "longer than 4000 characters"),
        ("(" * 1500 + ")" * 1500, None),
        (
            "(" * 30 + "a" + ")+" * 30 + "(?=b)",
            "too large for an expression with lookaround, back-references or possessive repeats: "
            "use fewer nested repeats, or remove these",
        ),
        ("(?:(?:[(){2}]{99}){99}){99}(?=b)", "too large for an expression with lookaround, "),
        ("(?=" + r"a{2147483647}" + ")", "too large for an expression with lookaround, "),
    ],
)
def test_refused_expressions(source: str, message: str | None) -> None:
    begun = time.process_time()
    try:
        expressions.Expression(source)
    except expressions.ExpressionError as error:
        assert message is None or str(error).startswith(message)
    else:
        assert message is None
    assert time.process_time() - begun < 5


PARTS = st.sampled_from(
    [
        *("a", "b", ".", r"\d", r"\w", r"\s", r"\b", "[ab]", "[^a]", "é", "(?P<x>a|b)", "(?:ab)"),
        *("^", "$", "a+", "b*?", "[0-9]{1,3}", "(?=a)", "(?<!b)", "a++", "(?i:B)", r"\.", "{"),
        "{,2}",
    ]
)


@settings(deadline=None, max_examples=300)
@given(
    parts=st.lists(PARTS, max_size=5).map("".join),
    text=st.text("aAbB é1.\t{,", max_size=9),
)
def test_both_engines_match_like_python(parts: str, text: str) -> None:
    try:
        plain = re.compile(parts, re.ASCII)
    except re.error:
        with pytest.raises(expressions.ExpressionError):
            expressions.Expression(parts)
        return
    ours = expressions.Expression(parts)
    for method in ("fullmatch", "search"):
        expected, result = getattr(plain, method)(text), getattr(ours, method)(text)
        assert (result is None) == (expected is None)
        if expected is not None:
            assert result.groupdict() == expected.groupdict()
            assert [result.span(name) for name in plain.groupindex] == [
                expected.span(name) for name in plain.groupindex
            ]
