"""Values of --since and other options."""

import datetime
import time

import click
import pytest

from orchestrator.cli.arguments import value_types
from orchestrator.text import sizes

#: 11:30 in Oslo.
NOW = datetime.datetime(2026, 11, 21, 10, 30, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def in_oslo(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Europe/Oslo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", "2026-11-21T10:30"),
        ("now-2hours", "2026-11-21T08:30"),
        ("2 hours ago", "2026-11-21T08:30"),
        ("NOW-90min", "2026-11-21T09:00"),
        ("12h", "2026-11-20T22:30"),
        ("3days", "2026-11-18T10:30"),
        ("1 week ago", "2026-11-14T10:30"),
        ("30 sec ago", "2026-11-21T10:29:30"),
        ("today", "2026-11-20T23:00"),
        ("yesterday", "2026-11-19T23:00"),
        ("noon", "2026-11-20T11:00"),
        ("10:05", "2026-11-21T09:05"),
        ("10:05:30", "2026-11-21T09:05:30"),
        # Still to come today.
        ("11:31", "2026-11-20T10:31"),
        ("2026-11-20", "2026-11-19T23:00"),
        ("2026-11-20T10:05", "2026-11-20T09:05"),
        ("2026-11-20T10:05Z", "2026-11-20T10:05"),
        # Summer time.
        ("2026-07-01T12:00", "2026-07-01T10:00"),
    ],
)
def test_since(text: str, at: str):
    expected = datetime.datetime.fromisoformat(at).replace(tzinfo=datetime.UTC)
    assert value_types.time_before(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "25:00", "10:61", "2 fortnights ago", "hours", "-1h"])
def test_invalid_times(text: str):
    with pytest.raises(click.BadParameter):
        value_types.time_before(text, NOW)


def test_midnight_of_a_day_whose_clocks_changed():
    # 2026-10-25 had 25 hours in Oslo.
    monday = datetime.datetime(2026, 10, 26, 8, tzinfo=datetime.UTC)
    expected = datetime.datetime(2026, 10, 24, 22, tzinfo=datetime.UTC)
    assert value_types.time_before("yesterday", monday) == expected


@pytest.mark.parametrize("text", ["9" * 30, "99999999999d", "9" * 4000 + "w"])
def test_a_length_beyond_any_calendar(text):
    with pytest.raises(click.BadParameter, match="is too long"):
        value_types.duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("1GB", 10**9),
        ("1.5g", 1_500_000_000),
        ("500 MB", 500_000_000),
        ("2TiB", 2 * 2**40),
        ("1KiB", 1024),
        ("0", 0),
    ],
)
def test_size(text: str, size_bytes: int) -> None:
    assert value_types.size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1XB", "1e9", "nan", "1.GB", "\u0661GB"])
def test_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        value_types.size(text)
    expected = f"{text!r} is not a size: write 500MB, 1.5GB, 2TB or 1GiB"
    assert raised.value.message == expected


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (99_960_000, "100 MB"),
        (41_200_000_000, "41.2 GB"),
        (5 * 10**18, "5000 PB"),
    ],
)
def test_text_of_a_size(size_bytes: int, text: str) -> None:
    assert sizes.text(size_bytes) == text
