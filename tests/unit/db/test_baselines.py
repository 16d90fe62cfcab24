"""Baselines in the store: values are read back unchanged."""

from __future__ import annotations

import datetime
import json

from orchestrator import reports
from orchestrator.controller.reports import baselines
from orchestrator.controller.session import stores

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
WHOLE = reports.Measurement(
    name="line 2",
    size=4,
    throughput=1000.5,
    windows=(1000.0, 1001.0),
    nodes=2,
    epoch_seconds=12.5,
    total_seconds=1300.0,
    data_wait_share=0.02,
    memory_bytes=(2.0**30, 2.0**31),
    utilisation=0.9,
    accuracy=0.75,
    step_seconds={"data": 0.01},
    source="jsonl",
    warm_up="the first window of each attempt",
    node_list="n[1-2]",
    attributes={"mode": "ddp", "modèle": "é"},
)
LEAST = reports.Measurement(size=1, throughput=250.0)


def test_the_newest_of_a_name_counts(database_url: str) -> None:
    first = reports.MeasurementSet(unit="gpus", measurements=(LEAST,))
    second = reports.MeasurementSet(unit="ranks", measurements=(WHOLE, LEAST))
    with stores.Store(database_url) as store:
        with store.writing() as work:
            work.baselines.add("monday", "f.csv", 1, baselines.to_json(first), NOW)
            work.baselines.add("monday", "sweep s (@1)", 2, baselines.to_json(second), NOW)
        with store.reading() as work:
            text = work.baselines.measurements("monday")
            assert text is not None and baselines.from_json(text) == second
            assert work.baselines.measurements("tuesday") is None
            result = work.baselines.newest()
    assert [(item.row, item.source, item.runs) for item in result] == [
        (2, "sweep s (@1)", 2),
        (1, "f.csv", 1),
    ]
    assert result[0].created_at == NOW


def test_fields_of_another_version_are_left_out() -> None:
    figures = reports.MeasurementSet(unit="gpus", measurements=(LEAST,))
    stored = json.loads(baselines.to_json(figures))
    stored["measurements"][0]["watts"] = 700
    assert baselines.from_json(json.dumps(stored)) == figures


def test_a_record_is_json() -> None:
    stored = json.loads(
        baselines.to_json(reports.MeasurementSet(unit="gpus", measurements=(WHOLE,)))
    )
    assert stored["measurements"][0]["memory_bytes"] == [2**30, 2**31]
