"""Measurements of jobs, from their metrics, specs and results."""

from __future__ import annotations

import datetime
import math
from typing import Any, Literal

import pytest

from orchestrator import jobs, reports
from orchestrator.reports import job_measurements
from orchestrator.usage import gpus
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


def record(*metrics: jobs.Metric, **fields: Any) -> job_measurements.JobRecord:
    job = {"gpus": 4, "nodes": 2, "node_list": "n[1-2]", "job_id": "7", **fields.pop("job", {})}
    return job_measurements.JobRecord(
        job=builders.make_job(
            row=3, name="wrn", state=jobs.JobState.COMPLETED, created_at=NOW, **job
        ),
        spec=fields.pop("spec", jobs.JobSpec(name="wrn")),
        metrics=metrics,
        **fields,
    )


def metric(name: str, value: float, **fields: Any) -> jobs.Metric:
    return jobs.Metric(name=name, value=value, **{"source": "jsonl", **fields})


def measured(one: job_measurements.JobRecord, unit: str = "gpus") -> reports.Measurement:
    measurement = job_measurements.measurement(one, unit)
    assert isinstance(measurement, reports.Measurement), measurement
    return measurement


def epochs(*values: float, source: str = "log:olivia", attempt: int = 0) -> list[jobs.Metric]:
    return [
        metric("throughput", value, epoch=epoch, source=source, attempt=attempt)
        for epoch, value in enumerate(values, start=1)
    ]


def test_throughput_in_two_units() -> None:
    both = [
        metric("throughput", value, unit=unit, epoch=epoch)
        for epoch in (1, 2, 3)
        for value, unit in ((100.0 + epoch, "samples/s"), (9.0, "TFLOP/s/GPU"))
    ]
    assert measured(record(*both)).throughput == 102.5


def test_prefers_windows() -> None:
    windows = [metric("window_throughput", value) for value in (90.0, 110.0, math.nan, 100.0)]
    measurement = measured(record(*epochs(50.0, 60.0), *windows))
    assert (measurement.name, measurement.size, measurement.nodes, measurement.node_list) == (
        "wrn 7",
        4,
        2,
        "n[1-2]",
    )
    assert (measurement.throughput, measurement.windows) == (100.0, (90.0, 110.0, 100.0))
    assert (measurement.source, measurement.warm_up) == (
        "jsonl",
        "the first window of each attempt",
    )


def test_epochs_without_the_first_of_each_attempt() -> None:
    measurement = measured(record(*epochs(50.0, 100.0, 104.0), *epochs(60.0, 102.0, attempt=1)))
    assert (measurement.throughput, measurement.windows) == (102.0, ())
    assert (measurement.source, measurement.warm_up) == (
        "log:olivia",
        "the first epoch of each attempt",
    )
    measurement = measured(record(*epochs(50.0)))
    assert (measurement.throughput, measurement.warm_up) == (50.0, "nothing: it had one epoch")


def test_throughput_of_the_whole_run() -> None:
    measurement = measured(record(metric("total_throughput", 80.0, source="log:olivia")))
    assert measurement.warm_up == "nothing: the throughput is of the whole run"
    whole = metric("throughput", 80.0, source="log:olivia")
    assert measured(record(*epochs(50.0, 100.0), whole)).throughput == 100.0
    measurement = measured(record(whole))
    assert (measurement.throughput, measurement.warm_up) == (
        80.0,
        "nothing: the throughput is of the whole run",
    )
    assert (
        job_measurements.measurement(record(metric("loss", 1.0)), "gpus") == "no throughput found"
    )


def test_size_is_ranks_without_gpus() -> None:
    on_cpu = record(*epochs(50.0), metric("total_time", 9.0, world_size=2), job={"gpus": 0})
    assert measured(on_cpu, "ranks").size == 2
    lacking = record(*epochs(50.0), job={"gpus": None})
    assert job_measurements.measurement(lacking, "ranks") == "number of ranks unknown"


@pytest.mark.parametrize(
    ("mode", "size"), [("single", 1), ("ddp", 1), ("fsdp", 1), ("dp", 4), (None, 4)]
)
@pytest.mark.parametrize("key", ["environment", "surroundings"])
def test_size_of_a_job_on_an_exclusive_node(mode: str, size: int, key: str) -> None:
    result = {key: {"mode": mode, "world_size": 1}}
    assert measured(record(*epochs(50.0), result=result)).size == size


def test_ranks_without_gpus_are_the_started_tasks() -> None:
    program = record(*epochs(50.0), job={"gpus": 0}, spec=on("torchrun", 2))
    assert measured(program, "ranks").size == 2
    shell_line = record(*epochs(50.0), job={"gpus": 0}, spec=on("torchrun", 2, command="a.sh"))
    assert job_measurements.measurement(shell_line, "ranks") == "number of ranks unknown"


def on(
    launcher: Literal["torchrun", "srun", "python"], gpus: int | None, **fields: Any
) -> jobs.JobSpec:
    return jobs.JobSpec(
        name="wrn",
        launch=jobs.Launch(launcher=launcher, **fields),
        resources=jobs.Resources(gpus_per_node=gpus),
    )


@pytest.mark.parametrize(
    ("spec", "world_size", "mode", "size"),
    [
        # An exclusive node: Slurm allocates four GPUs, regardless of the request.
        (on("torchrun", 1), None, None, 1),
        (on("torchrun", 2), None, None, 2),
        (on("srun", 2), None, None, 2),
        (on("torchrun", 4, nproc_per_node=2), 2, "ddp", 2),
        (on("python", 1), 1, "single", 1),
        # DataParallel uses all visible GPUs; for a shell command the number is unknown.
        (on("python", 1), 1, "dp", 4),
        (on("torchrun", None, command="bash train.sh"), 1, None, 4),
        (on("torchrun", None, command="bash train.sh"), 2, None, 2),
        # Ranks that share GPUs are no more GPUs.
        (on("torchrun", 4, nproc_per_node=8), 8, "ddp", 4),
        (on("torchrun", None), None, None, 4),
    ],
)
def test_size_is_the_number_of_gpus_used(
    spec: jobs.JobSpec, world_size: int | None, mode: str | None, size: int
) -> None:
    result = {"environment": {"mode": mode, "world_size": world_size}}
    measurement = measured(
        record(
            metric("window_throughput", 50.0, world_size=world_size),
            job={"gpus": 4, "nodes": 1},
            spec=spec,
            result=result,
        )
    )
    assert (measurement.size, measurement.gpus_allocated) == (size, 4)


def test_other_values() -> None:
    reader = gpus.Reader()
    reader.read(["timestamp, utilization.gpu [%]", "x, 80 %", "y, [N/A]", "z, 60", "nonsense"])
    measurement = measured(
        record(
            *epochs(50.0, 100.0),
            *(metric("epoch_time", value, epoch=1) for value in (20.0, 10.0)),
            *(metric("val_accuracy", value) for value in (0.5, 0.7)),
            *(metric("gpu_memory_reserved_peak", 2.0**30 * n, rank=n - 1) for n in (1, 2)),
            metric("gpu_memory_reserved_peak", 2.0**29, rank=1),
            metric("step_time", 0.5),
            metric("data_wait_share", 0.1),
            metric("total_time", 33.0),
            gpus=reader.usage("n1"),
        )
    )
    assert (measurement.epoch_seconds, measurement.accuracy, measurement.total_seconds) == (
        10.0,
        0.7,
        33.0,
    )
    assert measurement.memory_bytes == (2.0**30, 2.0**31)
    assert measurement.step_seconds == {"waiting for data": 0.05, "all else": 0.45}
    assert (measurement.data_wait_share, measurement.utilisation) == (0.1, 0.7)


def test_values_printed_by_lesson_05() -> None:
    measurement = measured(
        record(
            metric("total_throughput", 1.0),
            metric("memory", 5.0, unit="GB", rank=0),
            metric("gpu_utilization", 90.0, unit="%"),
        )
    )
    assert (measurement.memory_bytes, measurement.utilisation) == ((5e9,), 0.9)


def test_attributes_of_an_array_task() -> None:
    spec = jobs.JobSpec(
        name="wrn",
        launch=jobs.Launch(module="trainers.train"),
        args={"batch-size": 256, "precision": "auto", "compile": True, "steps": (3, 6)},
        array=jobs.Array(tasks=({"num_workers": 2}, {"num_workers": 8})),
    )
    result = job_measurements.attributes(
        record(
            spec=spec,
            job={"array_task_id": 1, "partition": "accel"},
            result={
                "environment": {"mode": "ddp", "torch": "2.13", "nccl": None},
                "settings": {"precision": "bf16", "batch_size": 256},
            },
            provenance={"git_commit": "0123456789abcdef", "git_dirty": True},
        )
    )
    assert result == {
        "batch_size": "256",
        "precision": "bf16",
        "compile": "true",
        "steps": "3 6",
        "num_workers": "8",
        "program": "trainers.train",
        "partition": "accel",
        "commit": "0123456789ab+changes",
        "mode": "ddp",
        "torch": "2.13",
    }


@pytest.mark.parametrize("result", [{"settings": "x"}, {"environment": [1]}, {}])
def test_invalid_results(result: dict[str, Any]) -> None:
    assert job_measurements.attributes(record(result=result)) == {}
