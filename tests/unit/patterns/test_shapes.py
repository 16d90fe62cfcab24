"""Lines that differ in digits alone: what is read at known places is what is found by a search."""

from __future__ import annotations

import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import logs, patterns
from orchestrator.patterns import shapes

DATA = pathlib.Path(__file__).parents[2] / "data" / "logs"
SHIPPED = patterns.load_shipped()
OWN = patterns.load(
    """
    [own]
    [[own.line]]
    name = "step"
    contains = "own "
    regex = 'own (?P<phase>[a-z0-9]+) (?P<step>[0-9]+) (?P<loss>{number}) (?P<time>{clock})'
    metrics = { loss = "", time = "s" }
    """,
    "own",
)
#: Lines that follow from one another, that hold two programs' texts, or that no road may take.
MADE = (
    "[titan] 2026-11-21 12:00:00,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345"
    "  memory: 50.00GiB(63.20%)  tps: 29,572  tflops: 419.87  mfu: 42.46%",
    "[rank3]: [titan] 2026-11-21 12:00:00,123 - root - INFO - validate step: 10  loss:  8.1234"
    "  memory: 50.00GiB(63.20%)  tps: 29,572",
    "2026-11-21T12:00:00+01:00 INFO step: 10  loss:  8.1234  tps: 29,572  acc1: 0.5  acc5: 0.7",
    " 12: iteration       10/ 5000 | consumed samples:        2048 | learning rate: 5.948E-05 | "
    "elapsed time per iteration (ms): 424377.8 | lm loss: 4.365822E+00 | grad norm: 4.887 |",
    "iter 100: loss 2.1234, time 123.45ms, mfu 12.34%",
    "iter 100: loss inf, time 1e999ms, mfu 12.34%",
    "own train 7 0.5 1:02:03",
    "own eval2 7 0.5 02:03",
    '{"step": 10, "loss": 0.52, "epoch": 0}',
    "{'loss': 2.1234, 'grad_norm': 1.5, 'learning_rate': 4.9e-05, 'epoch': 0.01}",
    "step=10 loss=0.5 1,234 tok/s",
    "Epoch 1/5",
    "\x1b[31mstep: 10  loss:  8.1234  tps: 29,572\x1b[0m \r",
)
RECORDED = sorted(
    {
        logs.lines.clean(line)
        for path in sorted(DATA.glob("*.log"))
        for line in path.read_bytes().splitlines()
    }
)


def other_digits(text: str, draw: random.Random, share: float) -> str:
    """Return a line of the same shape, more or less."""
    return "".join(
        draw.choice("0123456789") if one.isdecimal() and draw.random() < share else one
        for one in text
    )


@settings(deadline=None, max_examples=120)
@given(
    chosen=st.lists(st.sampled_from(RECORDED) | st.sampled_from(MADE), min_size=1, max_size=4),
    order=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([0.0, 0.2, 1.0]),
            st.integers(0, 3),
            st.sampled_from(["", "", "", "\r", " ", "\x00", "9", "é"]),
        ),
        max_size=12,
    ),
    known=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_same_numbers(
    chosen: list[str], order: list[tuple[int, float, int, str]], known: bool, seed: int
) -> None:
    draw = random.Random(seed)
    every = patterns.joined(OWN, SHIPPED)
    state = {"attempt": 0, "known": known, "streams": {}}
    matcher = patterns.Matcher(every, state)
    for line in chosen:
        state_before = matcher.state
        assert repr(matcher.read(line)) == repr(patterns.Matcher(every, state_before).read(line))
    attempt = 0
    for place, share, turn, end in order:
        text = other_digits(chosen[place % len(chosen)], draw, share) + end
        attempt += turn == 3
        # One that has read nothing knows no shapes.
        plain = patterns.Matcher(every, matcher.state)
        expected = plain.read(text, attempt=attempt)
        assert repr(matcher.read(text, attempt=attempt)) == repr(expected)
        assert matcher.state == plain.state


@pytest.mark.parametrize(
    ("regex", "alike"),
    [
        (r"loss (?P<loss>[-+]?[0-9]++(?:\.\d*)?) [^0-9]\w(?=[0-90])", True),
        ("loss (?P<loss>[0-9]+) bf16", False),
        ("loss (?P<loss>[1-9][0-9]*)", False),
        ("loss (?:a|[^5])(?P<loss>[0-9])", False),
        ("loss (?P<loss>[0-9])(?P=loss)", False),
    ],
)
def test_what_treats_digits_alike(regex: str, alike: bool) -> None:
    head = "[x]\n[[x.line]]\nname = 'l'\ncontains = 'loss '\n"
    (pattern,) = patterns.load(f"{head}regex = '{regex}'\nmetrics = {{ loss = '' }}", "x")
    assert (shapes.widened(pattern.lines[0]) is pattern.lines[0].regex) is alike


def test_the_rank_of_a_prefix_is_read_where_it_stands() -> None:
    matcher = patterns.Matcher(SHIPPED, {"attempt": 0, "known": True, "streams": {}})
    ranks = [
        matcher.read(f"{rank}: iter 3{rank}: loss 2.{rank}, time 3.00ms, mfu 1.00%")[0].rank
        for rank in (3, 4, 3, 9)
    ]
    assert ranks == [3, 4, 3, 9]


@pytest.mark.parametrize("place", [0, 1, 3, 4, 9])
def test_a_line_of_a_known_shape_is_not_searched(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = patterns.Matcher(SHIPPED, {"attempt": 0, "known": True, "streams": {}})
    # The second finds a layout, where the first had to be taken apart.
    for _ in range(2):
        matcher.read(MADE[place])
    text = other_digits(MADE[place], random.Random(1), 0.3)
    (expected,) = patterns.Matcher(SHIPPED, matcher.state).read(text)
    monkeypatch.setattr(patterns.Matcher, "_read", None)
    assert repr(matcher.read(text)) == repr([expected])
