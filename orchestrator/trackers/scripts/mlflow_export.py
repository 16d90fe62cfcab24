"""Brings a run on an MLflow server up to date. Runs in the user's Python: needs only mlflow.

Reads JSON from stdin and prints JSON. The server is asked what it has, so no value is sent twice.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

METRICS, PARAMETERS = 1000, 100
LARGEST = sys.float_info.max
OF_RUN = "orchestrator.export"


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        print(error, file=sys.stderr)
        return 3
    print(json.dumps(export(MlflowClient(request["uri"]), request)))
    return 0


def export(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    from mlflow.entities import Metric, Param

    experiment = experiment_of(client, request["experiment"])
    wanted = {
        name: [
            # Servers refuse times before 1970.
            (step, max(0, round(1000 * times[index])), normal(values[index]))
            for index, step in enumerate(steps)
        ]
        for name, (steps, times, values) in request["series"].items()
    }
    known = {name: {identity(*point) for point in points} for name, points in wanted.items()}
    of_run: dict[str, set[Any]] = {}
    run, outdated = None, []
    for each in client.search_runs([experiment], f"tags.`{OF_RUN}` = '{request['id']}'"):
        found = stored(client, each)
        # A server keeps every value. After a resume from an earlier step the run is made anew.
        if run is None and all(points <= known.get(name, set()) for name, points in found.items()):
            run, of_run = each, found
        else:
            outdated.append(each)
    if run is None:
        tags = {OF_RUN: request["id"]}
        if request["group"]:
            tags["orchestrator.sweep"] = request["group"]
        start = round(1000 * request["created"])
        run = client.create_run(experiment, start_time=start, tags=tags, run_name=request["name"])
    run_id, given = run.info.run_id, run.data.params
    params = [Param(key, text) for key, text in request["parameters"].items() if key not in given]
    for start in range(0, len(params), PARAMETERS):
        client.log_batch(run_id, params=params[start : start + PARAMETERS])
    added = [
        Metric(name, value, time, step)
        for name, points in wanted.items()
        for step, time, value in points
        if identity(step, time, value) not in of_run.get(name, ())
    ]
    for start in range(0, len(added), METRICS):
        client.log_batch(run_id, metrics=added[start : start + METRICS])
    if request["status"] != run.info.status:
        if request["ended"] is None:
            client.update_run(run_id, status=request["status"])
        else:
            client.set_terminated(run_id, request["status"], end_time=request["ended"])
    for each in outdated:
        client.delete_run(each.info.run_id)
    return {"added": len(added), "experiment": experiment, "run": run_id}


def experiment_of(client: Any, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        from mlflow.exceptions import MlflowException

        try:
            return str(client.create_experiment(name))
        except MlflowException:
            # Another export was faster, or it fails.
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    return str(experiment.experiment_id)


def stored(client: Any, run: Any) -> dict[str, set[Any]]:
    """Return the values that a run has, by name."""
    return {
        name: {
            identity(each.step, each.timestamp, normal(each.value))
            for each in client.get_metric_history(run.info.run_id, name)
        }
        for name in run.data.metrics
    }


def normal(value: float) -> float:
    """Return the value as servers store it."""
    return value if math.isnan(value) else max(-LARGEST, min(LARGEST, value))


def identity(step: int, time: int, value: float) -> tuple[int, int, str]:
    return step, time, repr(value)


if __name__ == "__main__":
    sys.exit(main())
