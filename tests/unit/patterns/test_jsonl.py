"""Lines of metrics.jsonl."""

import datetime
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import jobs, patterns

LINE = {
    "name": "throughput",
    "value": 457.352,
    "unit": "images/second",
    "step": 90,
    "epoch": 2,
    "rank": 0,
    "world_size": 4,
    "time": "2026-11-21T09:00:00.125+01:00",
    "attempt": 1,
}


def test_all_of_a_line():
    assert patterns.parse_jsonl(json.dumps(LINE), path="metrics.jsonl", line=3) == [
        jobs.Metric(
            name="throughput",
            value=457.352,
            unit="images/second",
            step=90,
            epoch=2,
            rank=0,
            world_size=4,
            time=datetime.datetime(2026, 11, 21, 8, 0, 0, 125000, tzinfo=datetime.UTC),
            attempt=1,
            source="jsonl",
            path="metrics.jsonl",
            line=3,
        )
    ]


@pytest.mark.parametrize("value", ["null", "NaN", "-Infinity", "1e999"])
def test_no_finite_number_is_nan(value: str):
    (metric,) = patterns.parse_jsonl('{"name": "loss", "value": ' + value + "}")
    assert math.isnan(metric.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "loss", "val',
        '{"name": "loss"}',
        '{"value": 1}',
        '{"name": "loss", "value": "1"}',
        '{"name": "loss", "value": true}',
        '{"name": "lo ss", "value": 1}',
        '{"name": "", "value": 1}',
        '{"name": "loss", "value": 1%s}' % ("0" * 400),
        '["loss", 1]',
        "3",
        "[" * 10_000,
        "",
    ],
)
def test_other_lines_are_ignored(text: str):
    assert patterns.parse_jsonl(text) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", -1), ("step", 2**63), ("step", 1.5), ("epoch", True), ("rank", "0")],
)
def test_invalid_counts_are_ignored(key: str, value: object):
    (metric,) = patterns.parse_jsonl(json.dumps({**LINE, key: value}))
    assert getattr(metric, key) is None
    assert metric.value == 457.352


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        (1_795_000_000.5, 1_795_000_000.5),
        ("2026-11-18T11:46:40Z", 1_795_002_400),
        ("2026-11-18T11:46:40", None),
        ("yesterday", None),
        (1e300, None),
        ([], None),
    ],
)
def test_times(time: object, seconds: float | None):
    (metric,) = patterns.parse_jsonl(json.dumps({**LINE, "time": time}))
    assert (metric.time and metric.time.timestamp()) == seconds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(sorted(LINE)) | st.text(), JSON))
def test_no_record_raises(record: dict[str, object]):
    for metric in patterns.parse_jsonl(json.dumps({"name": "loss", "value": 1, **record})):
        assert isinstance(metric.value, float)


def test_an_attempt_out_of_range_is_ignored():
    (metric,) = patterns.parse_jsonl(json.dumps({**LINE, "attempt": 2**31}))
    assert metric.attempt == 0
