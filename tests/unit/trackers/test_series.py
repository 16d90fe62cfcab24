"""Runs from stored values, and what of them is new."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import metrics
from orchestrator.trackers import batches, progress, series

AT = datetime.datetime(2026, 1, 2, 3, 4, 5)


def row(number: int, name: str, value: float | None, **fields: object) -> metrics.MetricRow:
    known = {"step": None, "epoch": None, "rank": None, "attempt": 0, "unit": "", "job_row": 1}
    known |= {"world_size": None, "time": None, "source": "log", "log_id": 1, "line": number}
    return metrics.MetricRow(id=number, name=name, value=value, **{**known, **fields})


def values(rows: list[metrics.MetricRow]) -> dict[str, list[tuple[int, float]]]:
    found = series.of_chain(rows, {1: 0, 2: 1}, 7.0)
    return {each.name: [*zip(each.steps, each.values, strict=True)] for each in found}


def test_later_attempts_and_jobs_replace_the_steps_that_they_run_again() -> None:
    rows = [row(n, "loss", n / 10, step=n) for n in range(1, 6)]
    rows += [row(n + 3, "loss", n / 100, step=n, attempt=1) for n in range(3, 7)]
    rows += [row(n + 5, "loss", n / 1000, step=n, job_row=2) for n in range(6, 8)]
    # A log that is read late has higher numbers.
    rows += [row(90, "val_loss", 9.0, step=2), row(91, "val_loss", 8.0, step=4, attempt=1)]
    assert values(rows) == {
        "loss": [(1, 0.1), (2, 0.2), (3, 0.03), (4, 0.04), (5, 0.05), (6, 0.006), (7, 0.007)],
        "val_loss": [(2, 9.0), (4, 8.0)],
    }


def test_each_series_has_a_name_of_its_own() -> None:
    rows = [
        row(1, "loss", 1.0, step=1, rank=0),
        row(2, "loss", 2.0, step=1, rank=3),
        row(3, "loss", 3.0, epoch=1, rank=0),
        row(4, "loss", 4.0),
        row(5, "rate", 5.0, step=1, unit="samples/s"),
        row(6, "rate", 6.0, step=1, unit="%"),
        row(7, "step", 1.0, step=1),
        row(8, "loss (train)", None, step=1, time=AT),
        # A path that MLflow would refuse.
        row(9, "eval//../loss/", 9.0, step=1),
    ]
    found = series.of_chain(rows, {1: 0}, 7.0)
    assert [(each.name, each.axis, [*each.steps], [*each.times]) for each in found] == [
        ("loss", "step", [1], [7.0]),
        ("loss/rank 3", "step", [1], [7.0]),
        ("loss/by epoch", "epoch", [1], [7.0]),
        ("loss/by count", "count", [0], [7.0]),
        ("rate", "step", [1], [7.0]),
        ("rate/by step", "step", [1], [7.0]),
        ("loss _train_", "step", [1], [AT.replace(tzinfo=datetime.UTC).timestamp()]),
        ("eval/__/loss", "step", [1], [7.0]),
    ]


def pending(known: list[metrics.MetricRow], now: list[metrics.MetricRow]) -> tuple[int, int | None]:
    before, after = (series.of_chain(rows, {1: 0}, 7.0) for rows in (known, now))
    reached = progress.from_json(progress.to_json(progress.done(before)))
    found = progress.changes(reached, after)
    return found.added, found.replaced_from


def test_what_is_new_and_what_was_replaced() -> None:
    rows = [row(n, "loss", n / 10, step=n) for n in range(1, 6)]
    more = [row(9, "loss", 0.6, step=6), row(10, "val_loss", 0.6, step=6)]
    again = [row(n + 6, "loss", n / 100, step=n, attempt=1) for n in range(4, 6)]
    assert pending([], rows) == (5, None)
    assert pending(rows, rows) == (0, None)
    assert pending(rows, rows + more) == (2, None)
    assert pending(rows, rows + again) == (2, 4)
    assert pending(rows + again, rows + again) == (0, None)
    # The log was parsed again with another result, or the values are gone.
    changed = [rows[0]._replace(value=8.0), *rows[1:]]
    assert pending(rows, changed) == (5, 1)
    assert pending(rows + more, rows) == (0, 1)


@pytest.mark.parametrize(
    "text", [b"5", b"{", b"[" * 100_000, b'{"series": {}, "rows": null}', b'{"series": {"a": [3]}}']
)
def test_a_damaged_progress_is_none(text: bytes) -> None:
    with pytest.raises(ValueError):
        progress.from_json(text)


def test_rows_of_wandb_have_the_values_of_a_position() -> None:
    rows = [row(n, "loss", n / 10, step=n) for n in range(1, 3)]
    rows += [row(3, "rate", 5.0, step=2), row(4, "top1", 0.5, epoch=1), row(5, "loss", 9.0, step=2)]
    found = series.of_chain(rows, {1: 0}, 7.0)
    assert batches.rows((each, 0) for each in found) == [
        {"_timestamp": 7.0, "epoch": 1, "top1": 0.5},
        {"_timestamp": 7.0, "step": 1, "loss": 0.1},
        {"_timestamp": 7.0, "step": 2, "loss": 0.2, "rate": 5.0},
        {"_timestamp": 7.0, "step": 2, "loss": 9.0},
    ]
