"""Efficiency cards and their advice."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib

import pytest

from orchestrator import jobs
from orchestrator.cli import show
from orchestrator.usage import efficiency, gpus
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
GIB = 1 << 30
JOB = builders.make_job(
    row=7,
    state=jobs.JobState.COMPLETED,
    created_at=NOW,
    job_id="123",
    time_limit_seconds=36000,
    started_at=NOW - datetime.timedelta(hours=1),
    ended_at=NOW,
    cpus=72,
    gpus=2,
)
USED = efficiency.Used(
    elapsed_seconds=3600,
    cpus=72,
    cpu_seconds=7200.0,
    memory_peak_bytes=31 * GIB,
    memory_asked_bytes=440 * GIB,
    energy_joules=3_600_000,
)


def watched() -> list[gpus.GpuUsage]:
    reader = gpus.Reader()
    data = pathlib.Path(__file__).parents[2] / "data/gpu_usage_olivia.log"
    reader.read(data.read_text().splitlines())
    return reader.usage("n1")


def test_efficiency_lines() -> None:
    result = watched()
    card = efficiency.assess(JOB, USED, result, elapsed_seconds=3599)
    assert list(show.efficiency_lines(card, result)) == [
        "Time           [||                    10%] 01:00:00 of 10:00:00",
        "CPU            [|                      3%] 02:00:00 of 3-00:00:00 (72 CPUs)",
        "Memory         [|                      7%] 31G of 440G per node",
        "GPU n1:0       [|||||||||||||||       73%] memory 64.0 of 95.6 GiB, idle 25 %",
        "GPU n1:1       [                       0%] memory 0.0 of 95.6 GiB, idle 100 %",
        "Energy                                     1.000 kWh",
        "Note: idle 100 % of the time: GPU 1 of n1: request 1, or start one rank per GPU",
        "Note: used 10 % of its time limit: request 01:15:00 to start sooner",
        "Note: 2.0 of 72 CPUs were busy: request 3",
        "Note: used 31G of its 440G per node: request 40G to start sooner",
    ]
    assert card.gpu_share == pytest.approx(0.3675)


def notes(
    job: dict[str, object], usage: dict[str, object], gpu_usage: list[gpus.GpuUsage]
) -> list[str]:
    changed = dataclasses.replace(JOB, **job)  # type: ignore[arg-type]
    measured = dataclasses.replace(USED, **usage)  # type: ignore[arg-type]
    return list(efficiency.assess(changed, measured, gpu_usage, elapsed_seconds=1).notes)


def test_notes() -> None:
    assert notes({}, {"elapsed_seconds": 59}, watched()) == [
        "used 31G of its 440G per node: request 40G to start sooner"
    ]
    # The usage of a failed job is unknown. Idle GPUs are reported nevertheless.
    assert notes({"state": jobs.JobState.FAILED}, {}, watched()) == [
        "idle 100 % of the time: GPU 1 of n1: request 1, or start one rank per GPU"
    ]
    enough = {"cpu_seconds": 72 * 3600.0, "memory_peak_bytes": 430 * GIB}
    assert notes({"time_limit_seconds": 3700}, enough, []) == [
        "used 97 % of its time limit: a slower run would time out",
        "used 430G of its 440G per node: a little more would be out of memory",
    ]
    two = [dataclasses.replace(watched()[1], host="n2"), watched()[1]]
    assert notes({"time_limit_seconds": None}, enough | {"memory_asked_bytes": None}, two) == [
        "idle 100 % of the time: GPU 1 of n2; 1 of n1: does the program use them? "
        "(torch.cuda.is_available(), device)"
    ]


def test_unknown_values_are_listed() -> None:
    card = efficiency.assess(
        JOB, None, [], elapsed_seconds=60, why_unknown="reported when the job has ended"
    )
    assert card.unknown == (
        "CPU time and memory: reported when the job has ended",
        "GPU usage: no CSV of the trainer's monitor or of nvidia-smi found "
        "(spec key metrics.gpu_csv)",
    )
    assert (card.elapsed_seconds, card.cpu_share, card.memory_share) == (60, None, None)
    (missing,) = efficiency.assess(JOB, USED, watched()[:1], elapsed_seconds=60).unknown
    assert missing == "usage of 1 of 2 GPUs"


@pytest.mark.parametrize(
    ("count", "wish"), [(0.1, "1G"), (31.9, "32G"), (38.75, "40G"), (130, "136G"), (3000, "3008G")]
)
def test_memory_is_rounded_up(count: float, wish: str) -> None:
    assert efficiency._rounded_up(count * GIB) == wish
