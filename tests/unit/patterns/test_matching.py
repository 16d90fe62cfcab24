"""Matching: context from line to line, and any text at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import patterns

OWN = """
[own]
[[own.line]]
name = "head"
regex = 'epoch (?P<epoch>{integer})(?: on (?P<world_size>{integer}) ranks)?'
keep = { epoch = "once", world_size = "always" }
[[own.line]]
name = "speed"
contains = "speed"
regex = 'speed (?P<throughput>{number}) ?(?P<throughput_unit>\\S+)?(?: step (?P<step>{integer}))?'
metrics = { throughput = "it/s" }
takes = ["epoch", "world_size"]
[[own.line]]
name = "loss"
regex = 'loss (?P<loss>{number})'
metrics = { loss = "" }
takes = ["epoch"]
"""


@pytest.fixture
def own() -> tuple[patterns.Pattern, ...]:
    return patterns.load(OWN, "own.toml")


def match(matcher: patterns.Matcher, text: str, **options) -> tuple[object, ...]:
    (metric,) = matcher.match(text, **options)
    return (metric.name, metric.value, metric.epoch, metric.world_size)


def test_what_is_kept_once_goes_to_each_kind_of_line_once(own):
    matcher = patterns.Matcher(own)
    assert matcher.match("epoch 3 on 8 ranks") == []
    assert match(matcher, "speed 10") == ("throughput", 10, 3, 8)
    assert match(matcher, "loss 0.5") == ("loss", 0.5, 3, None)
    # Its own "epoch 4" was lost.
    assert match(matcher, "speed 11") == ("throughput", 11, None, 8)


def test_the_state_goes_on_in_another_process(own):
    first = patterns.Matcher(own)
    first.match("epoch 3 on 8 ranks")
    first.match("speed 10")
    second = patterns.Matcher(own, json.loads(json.dumps(first.state)))
    assert match(second, "loss 1") == ("loss", 1, 3, None)
    assert match(second, "speed 11") == ("throughput", 11, None, 8)


def test_what_is_kept_always_holds_until_it_changes(own):
    matcher = patterns.Matcher(own)
    for line in ("epoch 3 on 8 ranks", "epoch 4"):
        matcher.match(line)
        assert match(matcher, "speed 10")[3] == 8
    matcher.match("epoch 5 on 4 ranks")
    assert match(matcher, "speed 10") == ("throughput", 10, 5, 4)


def test_a_value_that_is_over_goes_to_no_other_kind_of_line(own):
    matcher = patterns.Matcher(own)
    matcher.match("epoch 3")
    assert match(matcher, "speed 10") == ("throughput", 10, 3, None)
    # "loss ..." of epoch 3 and "epoch 4" were lost.
    assert match(matcher, "speed 11") == ("throughput", 11, None, None)
    assert match(matcher, "loss 1") == ("loss", 1, None, None)


@pytest.mark.parametrize(
    "state",
    [{}, {"attempt": 0, "kept": {"own": {"epoch": 3}}}, {"attempt": "x", "kept": {}}, {"kept": []}],
)
def test_a_state_of_other_making_is_as_good_as_none(own, state):
    assert match(patterns.Matcher(own, state), "loss 1") == ("loss", 1, None, None)


def test_a_new_attempt_takes_nothing_from_the_one_before(own):
    matcher = patterns.Matcher(own)
    matcher.match("epoch 3 on 8 ranks")
    assert match(matcher, "speed 10", attempt=1) == ("throughput", 10, None, None)


def test_unit_and_step_of_the_line_itself(own):
    (metric,) = patterns.Matcher(own).match(
        "speed 10 samples/s step 7  ", attempt=2, path="a.out", line=5
    )
    assert (metric.unit, metric.step) == ("samples/s", 7)
    assert (metric.attempt, metric.path, metric.line) == (2, "a.out", 5)
    assert metric.source == "log:own"
    (plain,) = patterns.Matcher(own).match("speed 10")
    assert plain.unit == "it/s"


def test_of_two_patterns_that_find_the_same_name_the_first_wins(own):
    other = patterns.load(OWN.replace("own", "other"), "other.toml")
    (metric,) = patterns.Matcher([*other, *own]).match("loss 1")
    assert metric.source == "log:other"


def test_a_line_too_long_is_not_looked_at(own):
    assert patterns.Matcher(own).match("loss 1" + " " * 5000) == []


def test_an_integer_that_no_database_holds_is_left_out(own):
    matcher = patterns.Matcher(own)
    matcher.match("epoch " + "9" * 30)
    assert match(matcher, "loss 1") == ("loss", 1, None, None)


@given(st.text())
def test_no_text_raises(text: str):
    # Read from the packaged file each time would be slow, and the property is the code's.
    matcher = patterns.Matcher(patterns.load(OWN, "own.toml"))
    matcher.match(text)
    matcher.match("loss " + text)
    patterns.parse_jsonl(text)
