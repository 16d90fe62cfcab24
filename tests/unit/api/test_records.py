"""Data frames of records, with the libraries themselves."""

from __future__ import annotations

import datetime
import sys

import pandas
import pytest

from orchestrator import errors
from orchestrator.api import records
from orchestrator.rows.contract import results

TIME = "2026-11-21T09:00:00+00:00"
METRIC = {
    **{"row": 8, "job_id": "41", "array_task_id": None, "attempt": 0, "name": "loss", "value": 0.5},
    **{"unit": "", "step": 1, "epoch": None, "rank": None, "world_size": None, "time": TIME},
    **{"source": "log:keyvalue", "line": 2},
}
WITHOUT = {**METRIC, "job_id": None, "value": float("nan"), "step": None, "time": None}
ALL = [[METRIC, WITHOUT], [METRIC], [WITHOUT], []]


def of(rows: list[dict[str, object]]) -> records.Records:
    return records.Records(rows, item=results.MetricRow)


def test_frames_of_pandas_have_the_same_columns_with_any_rows() -> None:
    frames = [of(rows).to_pandas() for rows in ALL]
    assert [list(frame.columns) for frame in frames] == [list(METRIC)] * 4
    assert [str(frame["time"].dtype) for frame in frames] == ["datetime64[us, UTC]"] * 4
    both = frames[0]
    assert both["time"][0] == datetime.datetime.fromisoformat(TIME)
    assert both["value"].tolist()[0] == 0.5 and both["value"].isna().tolist() == [False, True]
    # Warnings are errors here, such as of columns without a type.
    assert len(pandas.concat(frames)) == 4
    other = records.Records([{"lr": 0.1, "point": 1}]).to_pandas()
    assert (list(other.columns), other["lr"][0]) == (["lr", "point"], 0.1)


def test_frames_of_polars_have_the_same_types_with_any_rows() -> None:
    polars = pytest.importorskip("polars", reason="polars has 180 MB: pip install polars")
    frames = [of(rows).to_polars() for rows in ALL]
    assert len({tuple(frame.schema.items()) for frame in frames}) == 1
    assert len(polars.concat(frames)) == 4
    assert frames[0]["time"][0] == datetime.datetime.fromisoformat(TIME)
    assert records.Records([{"lr": 0.1, "point": 1}]).to_polars().rows() == [(0.1, 1)]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(errors.OrchestratorError, match=f"Install it: pip install {name}$"):
            getattr(records.Records(), f"to_{name}")()
