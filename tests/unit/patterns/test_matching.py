"""Matching: context between lines, and arbitrary text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import patterns
from tests import builders

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
    return builders.load_patterns(OWN, "own.toml")


def match(matcher: patterns.Matcher, text: str, **options) -> tuple[object, ...]:
    (metric,) = matcher.metrics_of_line(text, **options)
    return (metric.name, metric.value, metric.epoch, metric.world_size)


def test_values_kept_once_are_used_once_per_line_kind(own):
    matcher = patterns.Matcher(own)
    assert matcher.metrics_of_line("epoch 3 on 8 ranks") == []
    assert match(matcher, "speed 10") == ("throughput", 10, 3, 8)
    assert match(matcher, "loss 0.5") == ("loss", 0.5, 3, None)
    # Its own "epoch 4" was lost.
    assert match(matcher, "speed 11") == ("throughput", 11, None, 8)


def test_the_state_can_be_resumed(own):
    first = patterns.Matcher(own)
    first.metrics_of_line("epoch 3 on 8 ranks")
    first.metrics_of_line("speed 10")
    second = patterns.Matcher(own, json.loads(json.dumps(first.state)))
    assert match(second, "loss 1") == ("loss", 1, 3, None)
    assert match(second, "speed 11") == ("throughput", 11, None, 8)


def test_kept_values_apply_until_they_change(own):
    matcher = patterns.Matcher(own)
    for line in ("epoch 3 on 8 ranks", "epoch 4"):
        matcher.metrics_of_line(line)
        assert match(matcher, "speed 10")[3] == 8
    matcher.metrics_of_line("epoch 5 on 4 ranks")
    assert match(matcher, "speed 10") == ("throughput", 10, 5, 4)


def test_an_outdated_value_is_not_taken(own):
    matcher = patterns.Matcher(own)
    matcher.metrics_of_line("epoch 3")
    assert match(matcher, "speed 10") == ("throughput", 10, 3, None)
    # "loss ..." of epoch 3 and "epoch 4" were lost.
    assert match(matcher, "speed 11") == ("throughput", 11, None, None)
    assert match(matcher, "loss 1") == ("loss", 1, None, None)


def test_a_new_attempt_inherits_nothing(own):
    matcher = patterns.Matcher(own)
    matcher.metrics_of_line("epoch 3 on 8 ranks")
    assert match(matcher, "speed 10", attempt=1) == ("throughput", 10, None, None)


def test_unit_and_step_of_the_line_itself(own):
    (metric,) = patterns.Matcher(own).metrics_of_line(
        "speed 10 samples/s step 7  ", attempt=2, path="a.out", line=5
    )
    assert (metric.unit, metric.step) == ("samples/s", 7)
    assert (metric.attempt, metric.path, metric.line) == (2, "a.out", 5)
    assert metric.source == "log:own"
    (plain,) = patterns.Matcher(own).metrics_of_line("speed 10")
    assert plain.unit == "it/s"


def test_the_first_of_two_patterns_wins(own):
    other = builders.load_patterns(OWN.replace("own", "other"), "other.toml")
    (metric,) = patterns.Matcher([*other, *own]).metrics_of_line("loss 1")
    assert metric.source == "log:other"


def test_a_very_long_line_is_ignored(own):
    assert patterns.Matcher(own).metrics_of_line("loss 1" + " " * 20_000) == []


def test_an_integer_out_of_range_is_ignored(own):
    matcher = patterns.Matcher(own)
    matcher.metrics_of_line("epoch " + "9" * 30)
    assert match(matcher, "loss 1") == ("loss", 1, None, None)


@given(st.text())
def test_no_text_raises(text: str):
    # Read from the packaged file each time would be slow, and the property is the code's.
    matcher = patterns.Matcher(builders.load_patterns(OWN, "own.toml"))
    matcher.metrics_of_line(text)
    matcher.metrics_of_line("loss " + text)
    patterns.parse_jsonl(text)


GENERIC = (
    OWN
    + """
[any]
generic = true
[[any.line]]
name = "pairs"
contains = "mark"
form = "pairs"
others = false
needs = [["step", "epoch"], ["loss", "accuracy"]]
[[own.line]]
name = "count"
regex = '- (?P<step>{integer}) -'
metrics = { step = "" }
"""
)


def test_generic_patterns_add_what_no_other_pattern_finds():
    matcher = patterns.Matcher(builders.load_patterns(GENERIC, "own.toml"))
    assert matcher.metrics_of_line("epoch=3 loss=0.5 mark")[0].source == "log:any"
    # Lines without a program's own format do not identify the program.
    assert [metric.name for metric in matcher.metrics_of_line("- 7 -")] == ["step"]
    again = patterns.Matcher(builders.load_patterns(GENERIC, "own.toml"), matcher.state)
    assert [
        (metric.name, metric.epoch) for metric in again.metrics_of_line("epoch=4 loss=0.5 mark")
    ] == [
        ("epoch", 4),
        ("loss", 4),
    ]
    assert again.metrics_of_line("loss 1")[0].source == "log:own"
    last = patterns.Matcher(builders.load_patterns(GENERIC, "own.toml"), again.state)
    added = last.metrics_of_line("epoch=5 loss=0.5 mark")
    assert [(metric.name, metric.epoch) for metric in added] == [("epoch", 5), ("loss", 5)]


def test_generic_patterns_do_not_count_beside_a_complete_one():
    complete = GENERIC.replace("[own]", "[own]\ncomplete = true", 1)
    matcher = patterns.Matcher(builders.load_patterns(complete, "own.toml"))
    assert matcher.metrics_of_line("epoch=3 loss=0.5 mark")
    matcher.metrics_of_line("loss 1")
    again = patterns.Matcher(builders.load_patterns(complete, "own.toml"), matcher.state)
    assert again.metrics_of_line("epoch=5 acc=0.8 mark") == []


def test_a_state_of_version_1():
    state = {"attempt": 0, "known": True, "streams": {"": {"last": {}, "kept": {}}}}
    matcher = patterns.Matcher(builders.load_patterns(GENERIC, "own.toml"), state)
    assert matcher.metrics_of_line("epoch=5 acc=0.8 mark") == []
    assert match(matcher, "loss 1") == ("loss", 1, None, None)


@pytest.mark.parametrize(
    "line",
    [
        "loss=0.5 mark",  # time unknown
        "epoch=3 mark",
        "epoch=3 loss=8,4 mark",
        "epoch=3 loss=12:30 mark",
        "the guide of the docs says that epoch=3 has loss=0.5 mark",
    ],
)
def test_generic_patterns_ignore_prose_and_parts_of_numbers(line: str):
    assert patterns.Matcher(builders.load_patterns(GENERIC, "own.toml")).metrics_of_line(line) == []


def test_phase_names_a_rate_in_tokens_and_a_throughput_in_two_units():
    (own,) = builders.load_patterns(
        """
[own]
[[own.line]]
name = "all"
regex = '(?P<phase>.+?) (?P<loss>{number}) (?P<tps>{thousands}) (?P<tf>{number}) (?P<took>{clock})'
[own.line.metrics]
loss = ""
tps = { name = "tokens_per_second", unit = "tok/s" }
tf = { name = "throughput", unit = "TFLOP/s" }
took = "s"
""",
        "own.toml",
    )

    def results(text: str) -> list[tuple[str, float, str]]:
        metrics = patterns.Matcher([own]).metrics_of_line(text)
        return [(metric.name, metric.value, metric.unit) for metric in metrics]

    assert results("train 0.5 12,345 3.5 1:02:03") == [
        ("loss", 0.5, ""),
        ("tokens_per_second", 12345, "tok/s"),
        ("throughput", 12345, "tok/s"),
        ("throughput", 3.5, "TFLOP/s"),
        ("took", 3723, "s"),
    ]
    assert [name for name, _, _ in results("valid 0.5 12,345 3.5 1:02:03")] == [
        "val_loss",
        "val_tokens_per_second",
        "val_throughput",
        "val_took",
    ]


SHIPPED = patterns.load_shipped()
LITERALS = sorted({part for item in SHIPPED for kind in item.lines for part in kind.texts})


@settings(max_examples=30)
@given(st.lists(st.sampled_from(LITERALS) | st.text(max_size=8), max_size=12))
def test_no_text_raises_with_the_included_patterns(parts: list[str]):
    matcher = patterns.Matcher(SHIPPED)
    matcher.metrics_of_line("".join(parts))
    matcher.metrics_of_line("{" + "".join(parts) + "}")


def test_slow_expressions_are_skipped_and_reported() -> None:
    texts = [
        f"[own{number}]\n[[own{number}.line]]\nname = 'l'\n"
        f"regex = '(?P<loss{number}>[0-9])(?:a|aa)+(?!b)$'\nmetrics = {{ loss{number} = '' }}\n"
        for number in range(12)
    ]
    plain = "[plain]\n[[plain.line]]\nname = 'l'\nregex = 'v (?P<v>{number})'\nmetrics.v = ''\n"
    one = patterns.Matcher(builders.load_patterns(texts[0] + plain, "own.toml"))
    assert [metric.value for metric in one.metrics_of_line("3aa")] == [3.0]
    assert one.metrics_of_line("1" + "a" * 60 + "!") == []
    assert one.metrics_of_line("3aa") == []
    assert [metric.value for metric in one.metrics_of_line("v 0.5")] == [0.5]
    assert one.slow == [
        'pattern own0, line "l" (own.toml): its regex took more than 0.05 s on a line of 62 '
        "characters and is not used for the rest of this read. Simplify it: fewer alternatives "
        "and repeats within repeats, no lookaround and no back-references"
    ]
    # Of many that are slow the first ten cost time; then no expression of a user is tried.
    many = patterns.Matcher(builders.load_patterns("".join(texts) + plain, "own.toml"))
    assert many.metrics_of_line("1" + "a" * 60 + "!") == []
    assert len(many.slow) == 10
    assert many.metrics_of_line("v 0.5") == []


def test_a_total_time_does_not_end_the_general_reader() -> None:
    matcher = patterns.Matcher(patterns.load_shipped())
    matcher.metrics_of_line("Total training time: 221.59 seconds")
    (metric,) = matcher.metrics_of_line("Samples per second: 226")
    assert (metric.name, metric.value) == ("throughput", 226)
