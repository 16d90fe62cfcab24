"""Patterns from TOML: all that is wrong is told, with its place."""

import dataclasses
import importlib.resources
import re

import pytest

from orchestrator import errors, patterns
from orchestrator.patterns import explosions, loading

GOOD = """\
[own]
description = "mine"
[[own.line]]
name = "speed"
contains = "it/s"
regex = '(?P<throughput>{number}) it/s'
metrics = { throughput = "it/s" }
"""


def problems(text: str) -> list[str]:
    with pytest.raises(errors.ConfigurationError) as caught:
        patterns.load(text, "own.toml")
    return [str(problem).split("\n")[0] for problem in caught.value.problems]


def test_good():
    (own,) = patterns.load(GOOD, "own.toml")
    assert (own.name, own.description, own.source) == ("own", "mine", "log:own")
    (kind,) = own.lines
    assert (kind.name, kind.contains, dict(kind.metrics)) == (
        "speed",
        ("it/s",),
        {"throughput": patterns.Value(name="throughput", unit="it/s")},
    )


def test_the_whole_message():
    with pytest.raises(errors.ConfigurationError) as caught:
        patterns.load(GOOD.replace("regex", "regexp").replace('"mine"', "5"), "own.toml")
    assert str(caught.value) == (
        "own.toml:2: own.description: must be a string (got 5)\n"
        "    2 | description = 5\n"
        "1 problem; nothing was done."
    )


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        ("[own]", "[own", ["own.toml:1: not TOML: Expected ']' at the end of a table declaration"]),
        (
            "regex =",
            "regexp =",
            [
                'own.toml:6: own.line[0].regexp: unknown key. Did you mean "regex"?',
                "own.toml:3: own.line[0]: has no regex",
            ],
        ),
        (
            "it/s'",
            "(it/s'",
            [
                "own.toml:6: own.line[0].regex: not a regular expression: missing ), "
                "unterminated subpattern"
            ],
        ),
        (
            "{ throughput",
            "{ speed",
            [
                'own.toml:7: own.line[0].metrics.speed: the regex has no group "speed": '
                "write (?P<speed>{number})",
                'own.toml:6: own.line[0].regex: the group "throughput" is not used: '
                "name it under metrics, or write (?:...)",
            ],
        ),
        (
            '= "it/s" }',
            "= 3 }",
            [
                "own.toml:7: own.line[0].metrics.throughput: must be a unit such as "
                '"seconds" or "", or { name = "...", unit = "..." } (got 3)'
            ],
        ),
        (
            "metrics =",
            'keep = { throughput = "twice" }\nmetrics =',
            [
                'own.toml:7: own.line[0].keep.throughput: must be one of "once", "always" '
                '(got "twice")',
                "own.toml:7: own.line[0].keep: only epoch, step, rank, world_size, phase hold for "
                "other lines (got throughput)",
            ],
        ),
        (
            "metrics =",
            'takes = ["loss"]\nmetrics =',
            [
                "own.toml:7: own.line[0].takes: only epoch, step, rank, world_size, phase hold for "
                "other lines (got loss)"
            ],
        ),
        (
            "metrics = ",
            'after = ["head"]\nmetrics = ',
            ['own.toml:7: own.line[0].after: there is no line "head" before'],
        ),
        (
            "(?P<throughput>{number}) it/s'\nmetrics = ",
            "{number} it/s'\n# ",
            ["own.toml:3: own.line[0]: finds nothing: name its groups under metrics or keep"],
        ),
        ("[[own.line]]", "[own.line]", ["own.toml:3: own.line: must be tables: [[own.line]]"]),
        (
            " it/s'",
            " (?:\\w+ ?)+it/s'",
            [
                "own.toml:6: own.line[0].regex: a repeat of nothing but repeats, such as (a+)*, "
                "can take for ever on a long line: put a fixed text between them, or write a "
                "possessive one, (a++)*"
            ],
        ),
    ],
)
def test_problems(old: str, new: str, messages: list[str]):
    assert old in GOOD
    assert problems(GOOD.replace(old, new, 1)) == messages


def test_a_pattern_without_lines_and_two_lines_of_one_name():
    text = GOOD + GOOD[GOOD.index("[[own") :] + "[empty]\n[Big]\nline = []\n"
    assert problems("a = 1\n" + text) == [
        "own.toml:1: a: must be a table: [a] (got 1)",
        'own.toml:10: own.line[1].name: there is a line "speed" before',
        "own.toml:14: empty: has no lines: write [[empty.line]]",
        "own.toml:15: Big: a pattern's name has small letters, digits, _ and - only",
        "own.toml:15: Big: has no lines: write [[Big.line]]",
    ]


def test_what_ships_is_right():
    text = importlib.resources.files("orchestrator").joinpath(loading.SHIPPED).read_text("utf-8")
    checked = patterns.load(text, loading.SHIPPED)
    assert [dataclasses.replace(one, origin="") for one in checked] == list(patterns.load_shipped())


def test_select():
    known = [
        *patterns.load(GOOD, "own.toml"),
        *patterns.load(GOOD.replace("own", "two"), "two.toml"),
    ]
    assert [p.name for p in patterns.select(known, [])] == ["own", "two"]
    assert [p.name for p in patterns.select(known, ["two", "own"])] == ["two", "own"]
    with pytest.raises(errors.ConfigurationError) as caught:
        patterns.select(known, ["owm", "nothing"], source="job.toml")
    assert [str(problem) for problem in caught.value.problems] == [
        'job.toml: metrics.patterns: no pattern "owm". Did you mean "own"?',
        'job.toml: metrics.patterns: no pattern "nothing". Known: own, two.',
    ]


# Holds on to the forms of Python's private parse tree as well.
@pytest.mark.parametrize(
    ("regex", "explosive"),
    [
        ("(a+)+b", True),
        ("(a*)*b", True),
        (r"(\w+\s*)+x", True),
        (r"(\d+|\w+)+x", True),
        ("((a|b+)c*)*d", True),
        ("(a{1,900}){1,900}b", True),
        ("x(?=(a+)+b)", True),
        ("(?>(a+)+b)", True),
        (r"(?:, \w+)*", False),
        (r"(?:\s+\w+=\S+)*", False),
        (r"(?:\w+\s)*", False),
        (r"\d+(?:\.\d+)?", False),
        ("(?:[0-9]{1,3}){2}", False),
        ("(a++)*b", False),
    ],
)
def test_repeats_that_take_for_ever_are_refused(regex: str, explosive: bool):
    assert explosions.may_explode(re.compile(regex)) is explosive
