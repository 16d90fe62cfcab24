"""Files with a job's GPU usage, and how much of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.controller.usage import gpu_files
from tests import builders

HEAD = "timestamp, index, utilization.gpu [%]\n"


def job(tmp_path: Path, **fields: object) -> jobs.Job:
    return builders.make_job(**{"run_dir": str(tmp_path), "job_id": "41", **fields})


def read_usage(one: jobs.Job, *patterns: str, folder: str = "") -> list[tuple[str, str, float]]:
    spec = jobs.JobSpec(name="demo", metrics=jobs.Metrics(gpu_csv=patterns))
    reported = gpu_files.read(one, spec, {"folder": folder})
    return [
        (gpu.host, gpu.index, gpu.utilization_percent.mean)
        for gpu in reported
        if gpu.utilization_percent is not None
    ]


def write(path: Path, *lines: str) -> None:
    path.write_text(HEAD + "".join(f"2026/11/21 10:00:00.000, {line}\n" for line in lines))


def test_the_files_of_the_monitor(tmp_path: Path) -> None:
    write(tmp_path / "gpu.n10.example.org.csv", "0, 10", "10, 20", "9, 30")
    write(tmp_path / "gpu.n2.0.csv", "0, 40")
    write(tmp_path / "gpu.n2.1.csv", "0, 50")
    (tmp_path / "gpu.n3.csv").mkdir()
    (tmp_path / "gpux.csv").write_text(HEAD)
    assert read_usage(job(tmp_path)) == [
        ("n10.example.org", "0", 10.0),
        ("n10.example.org", "9", 30.0),
        ("n10.example.org", "10", 20.0),
        # Each rank sees its own GPU alone, as the first one.
        ("n2 rank 0", "0", 40.0),
        ("n2 rank 1", "0", 50.0),
    ]
    assert read_usage(job(tmp_path / "gone")) == []


def test_files_of_an_array_task(tmp_path: Path) -> None:
    write(tmp_path / "gpu.3.n1.csv", "0, 10")
    write(tmp_path / "gpu.13.n1.csv", "0, 20")
    assert read_usage(job(tmp_path, array_task_id=3)) == [("n1", "0", 10.0)]


def test_files_that_the_spec_names(tmp_path: Path) -> None:
    own = tmp_path / "run"
    own.mkdir()
    write(tmp_path / "gpu_usage_41.log", "0, 10")
    write(tmp_path / "gpu_usage_42.log", "0, 20")
    one = job(own, nodes=1, node_list="n7")
    here = str(tmp_path)
    assert read_usage(one, "gpu_usage_%j.log", folder=here) == [("n7", "0", 10.0)]
    assert read_usage(one, "gpu_usage_*.log", folder=here) == [
        ("gpu_usage_41", "0", 10.0),
        ("gpu_usage_42", "0", 20.0),
    ]
    assert read_usage(one, f"{here}/gpu_usage_%j.log") == [("n7", "0", 10.0)]
    assert read_usage(job(own, job_id=None), "gpu_usage_%j.log", folder=here) == []


def test_the_end_of_a_large_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_files, "LIMIT_BYTES", 1000)
    write(tmp_path / "gpu.n1.csv", *["0, 10"] * 100, *["0, 90"] * 10)
    ((host, index, mean),) = read_usage(job(tmp_path))
    assert (host, index) == ("n1", "0")
    assert 30 < mean < 50, "ten of some thirty lines"
