"""Prefixes of launchers and loggers."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import patterns
from orchestrator.patterns import prefixes

ZONE = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "rest", "label", "rank"),
    [
        (" 3: loss 1", "loss 1", "3", 3),
        ("[rank3]: loss 1", "loss 1", "/3", 3),
        ("[1,3]<stdout>:loss 1", "loss 1", "/3", 3),
        ("[3]<stderr>:loss 1", "loss 1", "/3", 3),
        # Local ranks, and those of another node's.
        ("[default3]:loss 1", "loss 1", "/[default3]", None),
        (" 1: [default3]:loss 1", "loss 1", "1/[default3]", None),
        (" 1: [rank6]: loss 1", "loss 1", "1/6", 6),
        ("(RayTrainWorker pid=12, ip=10.0.0.7) loss 1", "loss 1", None, None),
        ("gpu-07: loss 1", "loss 1", "/gpu-07", None),
        ("2023-07-15 12:00:00,123 - mmdet - INFO - loss 1", "loss 1", "", None),
        ("2023-07-15 12:00:00 | INFO | loss 1", "loss 1", "", None),
        ("INFO:root:loss 1", "loss 1", "", None),
        ("INFO - loss 1", "loss 1", "", None),
        ("INFO  loss 1", "loss 1", "", None),
        ("[2021-04-01 10:00:00 swin](main.py 192): INFO loss 1", "loss 1", "", None),
        ("[INFO|trainer.py:1143] 2021-05-25 06:30:55,345 >> loss 1", "loss 1", "", None),
        ("[2023-05-01 10:00:00,123] [INFO] [timer.py:199:stop] loss 1", "loss 1", "", None),
        ("    [2023-05-01 10:00:00,123 INFO] loss 1", "loss 1", "", None),
        ("I0701 12:34:56.789012 140 file.py:12] loss 1", "loss 1", "", None),
        ("[07/12 10:20:30 d2.utils.events]:  loss 1", "loss 1", "", None),
        ("[rank0]:[titan] 2024-11-01 10:00:00,1 - root - INFO - loss 1", "loss 1", "/0", 0),
        ("loss: 1", "loss: 1", "", None),
        ("Epoch 1: loss 1", "Epoch 1: loss 1", "", None),
        ("[0/157] loss 1", "[0/157] loss 1", "", None),
        ("", "", "", None),
    ],
)
def test_prefix(text: str, rest: str, label: str | None, rank: int | None):
    parts = prefixes.split(text)
    assert (parts.rest, parts.rank) == (rest, rank)
    assert label is None or parts.label == label


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2023-07-15T12:00:00.5+02:00 x", datetime.datetime(2023, 7, 15, 12, 0, 0, 500000, ZONE)),
        ("[2023-07-15 12:00:00Z] x", datetime.datetime(2023, 7, 15, 12, tzinfo=datetime.UTC)),
        # A compute node's zone need not be ours.
        ("2023-07-15 12:00:00 x", None),
        ("2023-13-15 12:00:00Z x", None),
        ("0001-01-01 00:00:00+05:00 x", None),
    ],
)
def test_time(text: str, time: datetime.datetime | None):
    parts = prefixes.split(text)
    assert (parts.rest, parts.time) == ("x", time)


def test_lines_of_ranks_that_are_mixed_keep_their_own_epochs():
    matcher = patterns.Matcher(patterns.load_shipped())
    for line in ("0: Epoch 3/9 completed in 1.5 seconds", "1: Epoch 4/9 completed in 1.5 seconds"):
        matcher.metrics_of_line(line)
    other = patterns.Matcher(patterns.load_shipped(), matcher.state)
    result = [
        (metric.rank, metric.epoch)
        for rank in (0, 1)
        for metric in other.metrics_of_line(f"{rank}: Epoch Throughput: 10.5 images/second")
    ]
    assert result == [(0, 3), (1, 4)]


@given(st.text())
def test_any_text_has_a_rest(text: str):
    assert text.endswith(prefixes.split(text).rest)
