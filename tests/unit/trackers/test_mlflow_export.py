"""The program that brings a run on an MLflow server up to date, with a server in memory."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import pytest

from orchestrator.trackers.scripts import mlflow_export


class Server:
    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        self.batches = 0
        #: the number of the batch at which the export is killed
        self.kill_at = -1

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id="7")

    def search_runs(self, experiments: list[str], condition: str) -> list[Any]:
        assert (experiments, condition) == (["7"], "tags.`orchestrator.export` = 'abc-3'")
        return [*self.runs.values()]

    def create_run(self, experiment: str, **fields: Any) -> Any:
        number = f"run{len(self.runs) + 1}"
        info = types.SimpleNamespace(run_id=number, status="RUNNING")
        data = types.SimpleNamespace(metrics={}, params={})
        self.runs[number] = types.SimpleNamespace(info=info, data=data, fields=fields)
        return self.runs[number]

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        return self.runs[run_id].data.metrics[name]

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        self.batches += 1
        if self.batches == self.kill_at:
            raise KeyboardInterrupt
        data = self.runs[run_id].data
        data.params |= {each.key: each.value for each in params}
        for each in metrics:
            data.metrics.setdefault(each.key, []).append(each)

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        self.runs[run_id].info.status = status

    def delete_run(self, run_id: str) -> None:
        del self.runs[run_id]


@pytest.fixture(autouse=True)
def _entities(monkeypatch: pytest.MonkeyPatch) -> None:
    entities = types.ModuleType("mlflow.entities")
    record = types.SimpleNamespace
    entities.Metric = lambda key, value, timestamp, step: record(  # type: ignore[attr-defined]
        key=key, value=value, timestamp=timestamp, step=step
    )
    entities.Param = lambda key, value: record(key=key, value=value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)


def request(values: list[float]) -> dict[str, Any]:
    steps = [*range(len(values))]
    return {
        "experiment": "digits",
        "id": "abc-3",
        "name": "x.abc-3",
        "group": "lr",
        "created": 5.0,
        "status": "FINISHED",
        "ended": 9000,
        "parameters": {"lr": "0.1"},
        # The first one is before 1970.
        "series": {"loss": [steps, [-5.0, *[5.0] * (len(steps) - 1)], values]},
    }


def stored(server: Server) -> list[str]:
    (run,) = server.runs.values()
    assert run.info.status == "FINISHED" and run.data.params == {"lr": "0.1"}
    assert run.data.metrics["loss"][0].timestamp == 0
    return [repr(each.value) for each in run.data.metrics["loss"]]


def test_each_value_is_sent_once() -> None:
    server = Server()
    values = [0.5, math.nan, math.inf, -math.inf, *map(float, range(3000))]
    server.kill_at = 3
    with pytest.raises(KeyboardInterrupt):
        mlflow_export.export(server, request(values))
    answer = {"added": len(values) - 1000, "experiment": "7", "run": "run1"}
    assert mlflow_export.export(server, request(values)) == answer
    largest = sys.float_info.max
    sent = [repr(each) for each in (0.5, math.nan, largest, -largest, *values[4:])]
    assert stored(server) == sent
    batches = server.batches
    assert mlflow_export.export(server, request(values)) == {**answer, "added": 0}
    assert (stored(server), server.batches) == (sent, batches)
    assert mlflow_export.export(server, request([*values, 1.5])) == {**answer, "added": 1}


def test_a_run_with_replaced_values_is_made_anew() -> None:
    server = Server()
    mlflow_export.export(server, request([1.0, 2.0, 3.0]))
    server.kill_at = server.batches + 2
    with pytest.raises(KeyboardInterrupt):
        mlflow_export.export(server, request([1.0, 2.5, 3.5]))
    assert len(server.runs) == 2
    mlflow_export.export(server, request([1.0, 2.5, 3.5]))
    assert stored(server) == ["1.0", "2.5", "3.5"]
    assert server.runs.keys() == {"run2"}
