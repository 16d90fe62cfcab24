"""TOML that would take minutes to parse or crash Python's parser is rejected."""

from __future__ import annotations

import time

import pytest

from orchestrator.toml import documents, key_paths, schema

DEEP = "nested too deeply: at most 16 tables and arrays within each other"
INTEGER = "an integer must lie between -2^63 and 2^63 - 1"


def problem_of(text: str) -> str:
    begun = time.process_time()
    document, problems = documents.parse(text, "x.toml")
    assert time.process_time() - begun < 5.0
    assert document.data == {}
    (problem,) = problems
    return str(problem).partition("\n")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[job]\na" + ".a" * 30_000 + " = 1\n", "x.toml:2: a dotted key has more than 16 parts"),
        ("[a" + ' . "b"' * 30_000 + "]\n", "x.toml:1: a dotted key has more than 16 parts"),
        ("a = " + "[" * 100_000 + "]" * 100_000, f"x.toml:1: a[0][0]: {DEEP}"),
        (
            "a = " + "[" * 20 + "]" * 20,
            f"x.toml:1: a[0][0]: {DEEP}",
        ),
        (
            "a = " + "{a=" * 20 + "1" + "}" * 20,
            f"x.toml:1: a.a.a: {DEEP}",
        ),
        ("a = 1\nb = " + "1" * 4301 + " x", f"x.toml:2: b: {INTEGER}"),
        ("a = [0x" + "f" * 16 + "]", f"x.toml:1: a[0]: {INTEGER}"),
        ("a = 1\nb = " + "1" * 4301, f"x.toml:2: b: {INTEGER}"),
        (
            "a.b = 9223372036854775808",
            f"x.toml:1: a.b: {INTEGER}",
        ),
        (
            "[a]\n" + "k" * 1025 + " = 1",
            "x.toml:2: a key is longer than 1024 characters",
        ),
        ("a = [" + "1," * 100_001 + "]", "x.toml:1: more than 100000 keys and values"),
    ],
)
def test_refused(text, message):
    assert problem_of(text) == message


@pytest.mark.parametrize(
    "text",
    [
        "a = 'x" + ".a" * 100 + "'",
        '# "' + "a." * 100 + "a",
        'a = "\\"' + "x." * 100 + 'x"',
        'a = """\n"' + "x." * 100 + '"" """ # it\'s',
        "a = '''it's " + "x." * 100 + "x'''",
        ".".join("abcdefghijklmnop") + " = 1",
        "a = 9223372036854775807\nb = -9223372036854775808",
    ],
)
def test_strings_and_comments_are_not_limited(text):
    document, problems = documents.parse(text, "x.toml")
    assert problems == []
    assert document.data.keys() <= {"a", "b"}


def test_the_search_takes_linear_time():
    for text in ('"""' + '\\"""' * 500_000, "a " * 1_000_000, '"' * 2_000_000, "a" * 4_000_000):
        begun = time.process_time()
        with pytest.raises(ValueError):
            key_paths.loads(text)
        assert time.process_time() - begun < 10.0


def test_the_value_of_a_flag_is_bounded_too():
    text = "{a" + ".a" * 30_000 + " = 1}"
    assert schema.from_text(text, None) == text
    assert schema.from_text("1" * 5000, int) == "1" * 5000


def test_merging_many_keys_takes_linear_time():
    lower, _ = documents.parse("".join(f"a{n} = 1\n" for n in range(20_000)), "x")
    upper, _ = documents.parse("".join(f"a{n} = 2\n" for n in range(20_000)), "y")
    begun = time.process_time()
    merged = documents.merge(lower, upper)
    assert time.process_time() - begun < 5.0
    assert set(merged.data.values()) == {2}
    assert {origin.source for path, origin in merged.origins.items() if path} == {"y"}


def test_a_key_of_set_is_bounded():
    with pytest.raises(key_paths.NotTomlError):
        key_paths.read_key("a" + ".a" * 30_000)
