"""The GPU-hours that a job may use at most."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orchestrator import config, jobs
from orchestrator.controller.planning import hours
from orchestrator.local import slots

SPEC = jobs.JobSpec(
    name="demo",
    time_limit="30",
    partition="gpu",
    resources=jobs.Resources(nodes=2, gpus_per_node=4),
    launch=jobs.Launch(script="train.py"),
)
PROFILE = config.Profile(
    partitions={
        "gpu": config.Partition(gpus_per_node=8, max_time="1:00:00"),
        "other": config.Partition(),
    }
)
CPUS = jobs.Resources(nodes=2)
RETRIES = jobs.Retry(max_retries=2)
CHANGES = {"oom_device": {"resources.nodes": "x2"}}


@pytest.mark.parametrize(
    ("changes", "devices", "most"),
    [
        ({}, ("0", "1", "2", "3"), 4.0),
        # Without a request it gets one, and without a GPU nothing.
        ({"resources": jobs.Resources()}, ("0", "1"), 0.5),
        ({"resources": jobs.Resources(), "exclusive": True}, ("0", "1"), 1.0),
        ({}, (), 0.0),
    ],
)
def test_most_gpu_hours_on_this_machine(
    changes: dict[str, Any], devices: tuple[str, ...], most: float
) -> None:
    machine = slots.Slots(devices=devices or ("slot0",), are_gpus=bool(devices))
    assert hours.of_spec(dataclasses.replace(SPEC, **changes), PROFILE, machine) == most


@pytest.mark.parametrize(
    ("changes", "most", "starts"),
    [
        ({}, 4.0, 1),
        ({"time_limit": None}, 8.0, 1),
        ({"time_limit": "UNLIMITED"}, None, 1),
        ({"time_limit": None, "partition": "other"}, None, 1),
        ({"time_limit": None, "partition": "other", "resources": CPUS}, 0.0, 1),
        ({"resources": jobs.Resources(nodes=2, gres="gpu:a100:2")}, 2.0, 1),
        ({"array": jobs.Array(size=5)}, 20.0, 1),
        ({"sbatch": {"gpus-per-task": "64"}}, None, 1),
        ({"sbatch": {"tres-per-task": "gres/gpu:64"}}, None, 1),
        ({"launch": jobs.Launch(batch_file="run.sbatch")}, None, 1),
        # Exclusive nodes come with all their GPUs.
        ({"exclusive": True}, 8.0, 1),
        ({"exclusive": True, "resources": CPUS}, 8.0, 1),
        ({"exclusive": True, "partition": "gpu,other"}, None, 1),
        # The program may ask for another 20 starts, and [retry] for more jobs.
        ({"signal_seconds": 60}, 84.0, 21),
        ({"signal_seconds": 60, "requeue": False}, 4.0, 1),
        ({"retry": RETRIES}, 92.0, 23),
        ({"retry": dataclasses.replace(RETRIES, on=("node_fail",))}, 12.0, 3),
        ({"retry": dataclasses.replace(RETRIES, limits={"time_limit": 1})}, 16.0, 4),
        ({"retry": dataclasses.replace(RETRIES, gpu_hours=10)}, 14.0, 23),
        ({"retry": dataclasses.replace(RETRIES, changes=CHANGES)}, None, 23),
        ({"retry": jobs.Retry(changes=CHANGES)}, 4.0, 1),
    ],
)
def test_most_gpu_hours(changes: dict[str, Any], most: float | None, starts: int) -> None:
    spec = dataclasses.replace(SPEC, **changes)
    assert (hours.of_spec(spec, PROFILE), hours.starts(spec)) == (most, starts)
