"""Output of the check job on a compute node, and its interpretation by doctor."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.controller.setup import node_checks

T0 = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
LOG = """\
=== orchestrator doctor job 7 task 0 attempt 0 on n1 at 2026-11-21T08:00:02Z ===
probe host n1
probe clock {clock}
probe container apptainer version 1.4.5
probe container apptainer version 1.4.5
probe container ch-run 0.38
{gpus}
probe end
"""


def job(**changed: Any) -> jobs.Job:
    values: dict[str, Any] = {
        "row": 1,
        "token": "abcd12345678",
        "cluster": "lab",
        "scheduler": "slurm",
        "name": "doctor",
        "state": jobs.JobState.COMPLETED,
        "job_id": "7",
        "run_dir": "/runs/doctor.abcd12345678",
        "node_list": "n1",
        "exit_code": 0,
        "exit_signal": 0,
        "created_at": T0,
        "submitted_at": T0 + datetime.timedelta(seconds=1),
        "started_at": T0 + datetime.timedelta(seconds=2),
    }
    return jobs.Job(**{**values, **changed})


def outcomes(of: jobs.Job, *, gpus: str = "", late_seconds: int = 1) -> dict[str, tuple[str, str]]:
    clock = int(T0.timestamp()) + 2 + late_seconds
    checks = node_checks.checks(of, LOG.format(clock=clock, gpus=gpus))
    return {check.name: (check.outcome, check.found) for check in checks}


def test_all_is_well() -> None:
    gpus = (
        "probe gpu 580.95.05, NVIDIA H100\nprobe gpu 580.95.05, NVIDIA H100\n"
        "probe torch 2.15.0+cu132 13.2"
    )
    assert outcomes(job(), gpus=gpus) == {
        "runs_dir from a node": ("ok", "n1 writes it, and this host sees it"),
        "clock": ("ok", "this host, n1: same as slurmctld"),
        "container on a node": ("ok", "apptainer version 1.4.5, ch-run 0.38 on n1"),
        "GPU driver": ("ok", "2 x NVIDIA H100, driver 580.95.05; torch 2.15.0+cu132, CUDA 13.2"),
    }


@pytest.mark.parametrize(
    ("gpus", "outcome", "result"),
    [
        (
            "probe gpu 535.54.03, NVIDIA A100\nprobe torch 2.15.0+cu132 13.2",
            "bad",
            "1 x NVIDIA A100, driver 535.54.03; torch 2.15.0+cu132 is built for CUDA 13.2",
        ),
        (
            "probe gpu 535.54.03, NVIDIA A100\nprobe torch 2.6.0+cu124 12.4",
            "ok",
            "1 x NVIDIA A100, driver 535.54.03; torch 2.6.0+cu124, CUDA 12.4",
        ),
        (
            "probe gpu 535.54.03, NVIDIA A100\nprobe torch 2.13.0+cpu None",
            "bad",
            "1 x NVIDIA A100, driver 535.54.03; torch 2.13.0+cpu is built without CUDA",
        ),
        (
            "probe gpu 535.54.03, NVIDIA A100",
            "warning",
            "1 x NVIDIA A100, driver 535.54.03; no torch in the profile's environment",
        ),
        ("", "ok", "the job had no NVIDIA GPU"),
    ],
)
def test_torch_against_the_driver(gpus: str, outcome: str, result: str) -> None:
    assert outcomes(job(), gpus=gpus)["GPU driver"] == (outcome, result)


def test_without_slurm_there_is_no_other_clock() -> None:
    assert "clock" in outcomes(job())
    assert "clock" not in outcomes(job(scheduler="local"))


def test_clocks_that_differ() -> None:
    assert outcomes(job(), late_seconds=60)["clock"] == (
        "warning",
        "n1 and slurmctld differ by 60 s",
    )
    late = job(submitted_at=T0 - datetime.timedelta(minutes=10))
    assert outcomes(late)["clock"] == ("warning", "this host and slurmctld differ by 600 s")


def test_a_folder_that_the_node_does_not_see() -> None:
    lost = job(state=jobs.JobState.FAILED, exit_code=73)
    (check,) = node_checks.checks(lost, "")
    assert (check.name, check.outcome, check.found) == (
        "runs_dir from a node",
        "bad",
        "job 7 on n1 ended FAILED, exit code 73:0: /runs is not the same folder there",
    )


def test_a_node_that_cannot_do_its_set_up() -> None:
    (check,) = node_checks.checks(
        job(state=jobs.JobState.FAILED, exit_code=78), "probe host n1\nmodule: not found\n"
    )
    assert check.outcome == "bad"
    assert check.found == (
        "job 7 on n1 ended FAILED, exit code 78:0: the environment could not be set up: see the log"
    )
