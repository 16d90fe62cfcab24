"""submitit's private hook that we override, and the executors that hand a script over."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from submitit.core import core
from submitit.slurm import slurm as submitit_slurm

from orchestrator import errors
from orchestrator.controller.submission import submitit


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, with an srun on PATH: submitit requires one for its executor."""
    path = tmp_path / "bin/srun"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_the_hook_exists() -> None:
    assert list(inspect.signature(core.Job._register_in_watcher).parameters) == ["self"]


def test_slurm_gets_one_call_of_sbatch_and_nothing_else(run_dir: Path) -> None:
    watcher = submitit_slurm.SlurmJob.watcher
    calls_before = watcher.num_calls
    assert submitit.submit_to_slurm(run_dir, lambda: "57") == "57"
    assert watcher.num_calls == calls_before
    assert list(run_dir.iterdir()) == []


def test_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(errors.SlurmError, match="srun is not on PATH"):
        submitit.submit_to_slurm(tmp_path, pytest.fail)


def test_a_local_job_is_started_by_this_machine(tmp_path: Path) -> None:
    assert submitit.submit_to_machine(tmp_path, lambda: "local-7") == "local-7"
    assert list(tmp_path.iterdir()) == []
