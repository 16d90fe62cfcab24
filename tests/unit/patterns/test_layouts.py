"""Lines with the same names: in one go as one by one."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import patterns

SHIPPED = [one for one in patterns.load_shipped() if one.name in ("torchtitan", "megatron")]
KNOWN = {"attempt": 0, "known": True, "streams": {}}
LINES = (
    "[titan] 2026-11-21 12:00:00,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345"
    "  memory: 50.00GiB(63.20%)  tps: 29,572  tflops: 419.87  mfu: 42.46%",
    " iteration       10/ 5000 | consumed samples:        2048 | elapsed time per iteration (ms): "
    "424377.8 | learning rate: 5.948E-05 | lm loss: 4.365822E+00 | grad norm: 4.887 |",
)
NUMBERS = (
    "7",
    "0.5",
    "-1.25",
    "1e-05",
    "1E400",
    "nan",
    "1,234",
    "12,34",
    "5.",
    ".5",
    "",
    "x",
    "3 4",
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(LINES),
            st.lists(st.tuples(st.integers(0, 20), st.sampled_from(NUMBERS)), max_size=3),
            st.sampled_from(["", "  ", "   ", " | ", "  a: 1", ":"]),
            st.integers(0, 300),
        ),
        max_size=8,
    )
)
def test_the_same_numbers(changed: list[tuple[str, list[tuple[int, str]], str, int]]) -> None:
    matcher = patterns.Matcher(SHIPPED, KNOWN)
    for line in LINES:
        assert len(matcher.read(line)[0].values) >= 6
    for line, numbers, put, place in changed:
        parts = re.split(r"([0-9][0-9.,]*(?:E[-+][0-9]+)?)", line)
        for number, new in numbers:
            parts[(2 * number + 1) % (len(parts) - 1)] = new
        text = "".join(parts)
        text = text[:place] + put + text[place:]
        plain = patterns.Matcher(SHIPPED, KNOWN).read(text)
        assert repr(matcher.read(text)) == repr(plain)


def test_what_is_left_out_stays_left_out() -> None:
    matcher = patterns.Matcher(patterns.load_shipped(), KNOWN)
    line = "step 10 | loss: 3.2 | norm: 0.5 | dt: 12.0ms | tok/sec: 1,234 | eta: 12"
    told = [[name for name, _ in matcher.read(line)[0].names] for _ in range(3)]
    names = ["step", "loss", "grad_norm", "step_time", "tokens_per_second", "throughput"]
    assert told == [names] * 3
