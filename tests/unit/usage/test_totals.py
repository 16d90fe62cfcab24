"""GPU-hours: clipped to a period, split by month, and grouped by keys."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.jobs import JobState
from orchestrator.usage import totals
from tests import builders

OSLO = zoneinfo.ZoneInfo("Europe/Oslo")


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


JOB = builders.make_job(
    row=1,
    job_id="41",
    name="wrn",
    partition="gpu",
    cluster="c",
    labels=("team=vision", "paper"),
    nodes=2,
    gpus=8,
    cpus=144,
)
RUN = totals.Start(
    job=JOB,
    state=JobState.COMPLETED,
    started_at=at("2026-10-31T22:00"),
    ended_at=at("2026-11-01T03:00"),
)


def hours(result: list[totals.Usage]) -> list[tuple[str, float, float, float]]:
    return [
        ("/".join(item.words.values()), item.gpu_hours, item.core_hours, item.node_hours)
        for item in result
    ]


def test_a_month_ends_at_local_midnight() -> None:
    # In Oslo it is winter: November begins at 23:00 UTC.
    groups = totals.grouped([RUN], ["month"], zone=OSLO)
    assert hours(groups) == [("2026-10", 8.0, 144.0, 2.0), ("2026-11", 32.0, 576.0, 8.0)]
    assert [group.starts for group in groups] == [1, 1]
    year = dataclasses.replace(
        RUN, started_at=at("2025-12-31T23:00"), ended_at=at("2026-01-01T01:00")
    )
    assert hours(totals.grouped([year], ["month"], zone=datetime.UTC)) == [
        ("2025-12", 8.0, 144.0, 2.0),
        ("2026-01", 8.0, 144.0, 2.0),
    ]


def test_since_and_until() -> None:
    def between(since: str | None, until: str | None) -> list[float]:
        groups = totals.grouped(
            [RUN], ["name"], since=at(since) if since else None, until=at(until) if until else None
        )
        return [group.node_hours for group in groups]

    assert between(None, None) == [10.0]
    assert between("2026-11-01T01:00", "2026-11-01T02:00") == [2.0]
    assert between("2026-11-01T03:00", None) == []
    assert between(None, "2026-10-31T22:00") == []


def test_several_keys_and_wasted_share() -> None:
    second = dataclasses.replace(
        RUN,
        job=dataclasses.replace(JOB, row=2, name="har", labels=("team=audio",), gpus=None, cpus=8),
        state=JobState.CANCELLED,
        ended_at=at("2026-10-31T23:00"),
    )
    again = dataclasses.replace(second, started_at=at("2026-11-01T00:00"), state=JobState.REQUEUED)
    again = dataclasses.replace(again, ended_at=at("2026-11-01T01:00"))
    runs = [RUN, second, again]
    assert hours(totals.grouped(runs, ["label:team", "name"])) == [
        ("vision/wrn", 40.0, 720.0, 10.0),
        ("audio/har", 0.0, 16.0, 4.0),
    ]
    audio = totals.grouped(runs, ["label:team"])[1]
    assert (audio.jobs, audio.starts, audio.wasted_share) == (1, 2, 0.5)
    assert (audio.unknown_gpus, audio.unknown_cpus) == (2, 0)
    assert [item.words["label"] for item in totals.grouped(runs, ["label"])] == [
        "team=vision",
        "paper",
        "team=audio",
    ]
    assert [item.words["state"] for item in totals.grouped(runs, ["state"])] == [
        "COMPLETED",
        "CANCELLED",
        "REQUEUED",
    ]


@given(
    begin=st.datetimes(datetime.datetime(2000, 1, 1), datetime.datetime(2050, 1, 1)),
    seconds=st.integers(0, 10**8),
    zone=st.sampled_from([OSLO, datetime.UTC, zoneinfo.ZoneInfo("America/New_York")]),
)
def test_months_add_up(begin: datetime.datetime, seconds: int, zone: datetime.tzinfo) -> None:
    started_at = begin.replace(tzinfo=datetime.UTC)
    ended_at = started_at + datetime.timedelta(seconds=seconds)
    run = dataclasses.replace(RUN, started_at=started_at, ended_at=ended_at)
    groups = totals.grouped([run], ["month"], zone=zone)
    assert sum(group.node_hours for group in groups) == pytest.approx(2 * seconds / 3600)
    names = [group.words["month"] for group in groups]
    assert names == sorted(set(names))
