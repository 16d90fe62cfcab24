"""Curves: fewer points that look the same, and attempts as one line."""

from __future__ import annotations

import array
import datetime
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import metrics
from orchestrator.controller.metrics import curves
from orchestrator.controller.session import stores
from orchestrator.metrics import decimation
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf])), min_size=1, max_size=300
)


@given(VALUES, st.integers(1, 20))
def test_spikes_gaps_and_ends_stay(values: list[float], buckets: int) -> None:
    x = array.array("d", range(len(values)))
    at, shown = decimation.decimate(x, array.array("d", values), buckets)
    assert at == sorted(at)
    assert len(at) <= max(2 * buckets, 3 * buckets + 2)
    finite = [value for value in values if math.isfinite(value)]
    drawn = [value for value in shown if value is not None]
    assert set(drawn) <= set(finite)
    if finite:
        assert (min(drawn), max(drawn)) == (min(finite), max(finite))
    assert (None in shown) == (len(finite) < len(values))
    assert (at[0], at[-1]) == (0, len(values) - 1)


def test_a_spike_among_a_million_points() -> None:
    values = array.array("d", [1.0]) * 1_000_000
    values[543_210] = 9.0
    values[700_000] = math.nan
    at, shown = decimation.decimate(array.array("d", range(1_000_000)), values, 500)
    assert at[shown.index(9.0)] == 543_210
    assert at[shown.index(None)] == 700_000
    assert len(at) < 1100


def numbers(*values: float) -> metrics.Numbers:
    return array.array("d", values)


def test_a_new_attempt_replaces_what_it_does_again() -> None:
    curve = curves.Curve(None)
    curve.add((1, 0), numbers(10, 20, 30), numbers(1.0, 2.0, 3.0))
    curve.add((1, 0), numbers(30, 40), numbers(3.5, 4.0))
    # It continues from the checkpoint of step 20, in another job.
    curve.add((2, 0), numbers(30, 40, 50), numbers(30.0, 40.0, math.nan))
    assert list(curve.x) == [10, 20, 30, 40, 50]
    assert list(curve.y)[:4] == [1.0, 2.0, 30.0, 40.0]
    assert math.isnan(curve.last)
    assert (curve.extent, curve.first_not_finite()) == ((1.0, 40.0), 50)


def test_values_without_a_step_are_numbered() -> None:
    curve = curves.Curve(None)
    curve.add((1, 0), None, numbers(1.0, 2.0))
    curve.add((1, 0), None, numbers(3.0))
    assert list(curve.x) == [0, 1, 2]


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    with stores.Store(database_url) as store:
        yield store


def parsed(step: int, *values: float, rank: int | None = None) -> metrics.ParsedLine:
    return metrics.ParsedLine(
        path="",
        source="log:demo",
        attempt=0,
        rank=rank,
        world_size=None,
        names=(("loss", ""), ("speed", "images/s"), ("epoch", ""))[: len(values)],
        step=step,
        epoch=step // 10,
        time=NOW + datetime.timedelta(seconds=step),
        line=step,
        values=values,
    )


def test_only_new_lines_are_read(tmp_path: Path, store: stores.Store) -> None:
    context = builders.make_context(tmp_path, store, now=NOW)
    with store.writing() as work:
        (job,) = work.jobs.add_submission(builders.make_submission(1, NOW))
        work.metrics.add(job.row, [parsed(1, 2.5, 100.0, 0.0), parsed(2, math.nan, 90.0, 0.0)])
        work.metrics.add(job.row, [parsed(3, 7.0, rank=1)])
    cache = curves.Cache()
    first = cache.of(context, [job.row], "step")
    assert list(first) == [("loss", ""), ("speed", "images/s")]
    assert [(curve.rank, list(curve.x)) for curve in first["loss", ""]] == [
        (None, [1, 2]),
        (1, [3]),
    ]
    with store.writing() as work:
        work.metrics.add(job.row, [parsed(4, 1.5, 80.0, 0.0)])
    (speed,) = cache.of(context, [job.row], "step")["speed", "images/s"]
    assert (list(speed.x), list(speed.y)) == ([1, 2, 4], [100.0, 90.0, 80.0])
    (by_time,) = cache.of(context, [job.row], "time")["speed", "images/s"]
    assert list(by_time.x) == [NOW.timestamp() + step for step in (1, 2, 4)]
