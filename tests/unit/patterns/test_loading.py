"""Patterns from TOML: all problems are reported, with their line."""

import importlib.resources
from collections.abc import Sequence

import pytest

from orchestrator import errors, patterns
from tests import builders

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
        builders.load_patterns(text, "own.toml")
    return [str(problem).split("\n")[0] for problem in caught.value.problems]


def test_good():
    (own,) = builders.load_patterns(GOOD, "own.toml")
    assert (own.name, own.description, own.source) == ("own", "mine", "log:own")
    (kind,) = own.lines
    assert (kind.name, kind.texts, kind.groups) == (
        "speed",
        ("it/s",),
        {"throughput": patterns.Value(name="throughput", unit="it/s")},
    )


def test_the_whole_message():
    with pytest.raises(errors.ConfigurationError) as caught:
        builders.load_patterns(GOOD.replace("regex", "regexp").replace('"mine"', "5"), "own.toml")
    assert str(caught.value) == (
        'own.toml:2: own.description: must be a string (got 5): write "5"\n'
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
            ],
        ),
        (
            "metrics =",
            'keep = { throughput = "once" }\nmetrics =',
            [
                "own.toml:7: own.line[0].keep: only epoch, step, rank, world_size, phase can hold "
                "for other lines (got throughput)",
            ],
        ),
        (
            "metrics =",
            'takes = ["loss"]\nmetrics =',
            [
                "own.toml:7: own.line[0].takes: only epoch, step, rank, world_size, phase can hold "
                "for other lines (got loss)"
            ],
        ),
        (
            "metrics = ",
            'after = ["head"]\nmetrics = ',
            ['own.toml:7: own.line[0].after: no earlier line has the name "head"'],
        ),
        (
            "(?P<throughput>{number}) it/s'\nmetrics = ",
            "{number} it/s'\n# ",
            ["own.toml:3: own.line[0]: finds nothing: name its groups under metrics or keep"],
        ),
        (
            "[[own.line]]",
            "[own.line]",
            ["own.toml:3: own.line: must be a list of tables (got a table)"],
        ),
        (
            " it/s'",
            " (?:(?:x{99}){99}){99}(?!x)it/s'",
            [
                "own.toml:6: own.line[0].regex: too large for an expression with lookaround, "
                "back-references or possessive repeats: use fewer nested repeats, or "
                "remove these"
            ],
        ),
        (
            " it/s'",
            f" {'x' * 4000}'",
            ["own.toml:6: own.line[0].regex: longer than 4000 characters"],
        ),
    ],
)
def test_problems(old: str, new: str, messages: list[str]):
    assert old in GOOD
    assert problems(GOOD.replace(old, new, 1)) == messages


def test_a_pattern_without_lines_and_two_lines_of_one_name():
    text = GOOD + GOOD[GOOD.index("[[own") :] + "[empty]\n[Big]\nline = []\n"
    assert problems("a = 1\n" + text) == [
        "own.toml:1: a: must be a table (got 1)",
        'own.toml:10: own.line[1].name: an earlier line has the name "speed"',
        "own.toml:14: empty: has no lines: write [[empty.line]]",
        "own.toml:15: Big: a pattern name consists of lowercase letters, digits, _ and -",
        "own.toml:15: Big: has no lines: write [[Big.line]]",
    ]


def test_included_patterns_are_valid():
    text = importlib.resources.files("orchestrator").joinpath("patterns.toml").read_text("utf-8")
    checked = builders.load_patterns(text, "patterns.toml")
    assert names(patterns.load_shipped()) == names(checked)


def names(known: Sequence[patterns.Pattern]) -> list[tuple[str, list[str]]]:
    return [(pattern.name, [kind.name for kind in pattern.lines]) for pattern in known]


def test_select():
    known = [
        *builders.load_patterns(GOOD, "own.toml"),
        *builders.load_patterns(GOOD.replace("own", "two"), "two.toml"),
    ]
    assert [p.name for p in patterns.select(known, [])] == ["own", "two"]
    assert [p.name for p in patterns.select(known, ["two", "own"])] == ["two", "own"]
    with pytest.raises(errors.ConfigurationError) as caught:
        patterns.select(known, ["owm", "nothing"], source="job.toml")
    assert [str(problem) for problem in caught.value.problems] == [
        'job.toml: metrics.patterns: no pattern "owm". Did you mean "own"?',
        'job.toml: metrics.patterns: no pattern "nothing". Known: own, two.',
    ]
