"""Brings a run on an MLflow server up to date. Runs in the user's Python: needs only mlflow.

Reads JSON from stdin and prints JSON. The server is asked what it has, so no value is sent twice.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

request: dict[str, Any] = json.load(sys.stdin)
try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)

METRICS, PARAMETERS = 1000, 100
LARGEST = sys.float_info.max
OF_RUN = "orchestrator.export"


def normal(value: float) -> float:
    """Return the value as servers store it."""
    return value if math.isnan(value) else max(-LARGEST, min(LARGEST, value))


def identity(step: int, time: int, value: float) -> tuple[int, int, str]:
    return step, time, repr(value)


def stored(run: Any) -> dict[str, set[tuple[int, int, str]]]:
    """Return the values that a run has, by name."""
    return {
        name: {
            identity(each.step, each.timestamp, normal(each.value))
            for each in client.get_metric_history(run.info.run_id, name)
        }
        for name in run.data.metrics
    }


client = MlflowClient(request["uri"] or None)
experiment = client.get_experiment_by_name(request["experiment"])
if experiment is None:
    try:
        client.create_experiment(request["experiment"])
    except MlflowException:
        # Another export may have been faster.
        pass
    experiment = client.get_experiment_by_name(request["experiment"])
number = experiment.experiment_id

wanted = {
    name: [
        (step, round(1000 * times[index]), normal(values[index]))
        for index, step in enumerate(steps)
    ]
    for name, (steps, times, values) in request["series"].items()
}
known = {name: {identity(*point) for point in points} for name, points in wanted.items()}
of_run, chosen, outdated = {}, None, []
for each in client.search_runs([number], f"tags.`{OF_RUN}` = '{request['id']}'"):
    found = stored(each)
    # A server keeps every value. After a resume from an earlier step the run is made anew.
    if chosen is None and all(points <= known.get(name, set()) for name, points in found.items()):
        chosen, of_run = each, found
    else:
        outdated.append(each)
if chosen is None:
    tags = {OF_RUN: request["id"]}
    if request["group"]:
        tags["orchestrator.sweep"] = request["group"]
    start = round(1000 * request["created"])
    chosen = client.create_run(number, start_time=start, tags=tags, run_name=request["name"])
run_id = chosen.info.run_id
given = chosen.data.params
missing = [Param(key, text) for key, text in request["parameters"].items() if key not in given]
for start in range(0, len(missing), PARAMETERS):
    client.log_batch(run_id, params=missing[start : start + PARAMETERS])
added = [
    Metric(name, value, time, step)
    for name, points in wanted.items()
    for step, time, value in points
    if identity(step, time, value) not in of_run.get(name, ())
]
for start in range(0, len(added), METRICS):
    client.log_batch(run_id, metrics=added[start : start + METRICS])
if request["status"] != chosen.info.status:
    if request["status"] == "RUNNING":
        client.update_run(run_id, status="RUNNING")
    else:
        client.set_terminated(run_id, request["status"], end_time=request["ended"])
for each in outdated:
    client.delete_run(each.info.run_id)
print(json.dumps({"added": len(added), "experiment": number, "run": run_id}))
