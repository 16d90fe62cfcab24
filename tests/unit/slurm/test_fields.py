"""Parsing of columns."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.slurm import fields, states


def test_exit_code():
    assert fields.parse_exit_code("137:0") == (137, 0)
    assert fields.parse_exit_code("0:53") == (0, 53)
    assert fields.parse_exit_code("") == fields.parse_exit_code("0") == (None, None)


@pytest.mark.parametrize(
    ("raw", "expected"),
    # Measured on 22.05: exit 3, exit 137, kill -9, no log (with bit 7 set), refused.
    [("768", (3, 0)), ("35072", (137, 0)), ("9", (0, 9)), ("4021", (15, 53)), ("0:53", (0, 53))],
)
def test_wait_status(raw, expected):
    assert fields.parse_wait_status(raw) == expected


def test_times():
    noon = datetime.datetime(2026, 11, 21, 8, 15, 37, tzinfo=datetime.UTC)
    assert fields.parse_time("1795248937") == noon
    assert fields.parse_time("2026-11-21T08:15:37") == noon
    nothing = ["", "0", "N/A", "None", "Unknown", "Invalid", "9" * 12, "9" * 40, "-1", "٣"]
    nothing += ["99999999999", "3000-01-01T00:00:00", "1969-12-31T23:59:59"]
    assert [fields.parse_time(raw) for raw in nothing] == [None] * len(nothing)


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ("10:00", 600),
        ("1:00", 60),
        ("1:39:00", 5940),
        ("1-02:04:00", 93840),
        ("2-00", 172800),
        ("2-01:30", 178200),
        ("30", 1800),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("999999999999-00", None),
        ("", None),
    ],
)
def test_durations(raw, seconds):
    assert fields.parse_duration_seconds(raw) == seconds


@pytest.mark.parametrize(
    ("raw", "gpus"),
    [
        ("cpu=2,mem=1000M,node=2,billing=2,gres/gpu=4", 4),
        ("billing=2,cpu=2,gres/gpu=4,gres/gpu:a100=4", 4),
        ("gres/gpu:a100=2,gres/gpu:v100=1,gres/gpumem=80G", 3),
        ("gres:gpu:2", 2),
        ("gres/gpu:a100:2", 2),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:4(IDX:0-1,3)", 4),
        ("gpu:a100", 1),
        ("gpu", 1),
        ("gpu:1K", 1024),
        ("cpu=2,mem=1000M", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_gpus(raw, gpus):
    assert fields.parse_gpus(raw) == gpus


def test_counts():
    assert fields.parse_count("2K") == 2048
    assert fields.parse_count("1-2") is None


@given(st.text())
def test_nothing_raises(raw):
    for parse in (
        states.parse_state,
        fields.parse_exit_code,
        fields.parse_wait_status,
        fields.parse_time,
        fields.parse_duration_seconds,
        fields.parse_count,
        fields.parse_gpus,
        fields.parse_text,
    ):
        parse(raw)


def test_numbers_too_large_for_the_database_are_none() -> None:
    assert fields.parse_count("2147483647") == 2**31 - 1
    assert fields.parse_count("2147483648") is fields.parse_count("9999P") is None


def test_amounts_are_larger_than_counts() -> None:
    # 2 GiB, as AllocTRES gives the memory of a job; the largest priority.
    assert fields.parse_amount("2147483648") == fields.parse_amount("2G") == 2**31
    assert fields.parse_amount("4294967295") == 2**32 - 1
    assert fields.parse_amount("99999P") is None
    assert fields.parse_count("99999999999") is None
