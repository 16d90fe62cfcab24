"""What is used of submitit's private side is still there, and does what orchestrator counts on."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest
from submitit.core import core
from submitit.local import local as submitit_local
from submitit.slurm import slurm as submitit_slurm

from orchestrator import errors
from orchestrator.controller.submission import submitit
from orchestrator.slurm import process, sbatch


def answer(
    argv: Sequence[str], stdout: str, *, returncode: int = 0, stderr: str = ""
) -> process.Result:
    return process.Result(
        argv=tuple(argv),
        returncode=returncode,
        stdout=stdout,
        stderr=stderr,
        timed_out=False,
        seconds=0.1,
    )


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An srun on PATH: submitit refuses to make its executor without one."""
    path = tmp_path / "bin/srun"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.sbatch"
    path.write_text("#!/bin/bash\ntrue\n")
    return path


@pytest.mark.parametrize(
    ("owner", "hook", "parameters"),
    [
        (submitit_slurm.SlurmExecutor, "_make_submission_file_text", ["self", "command", "uid"]),
        (
            submitit_slurm.SlurmExecutor,
            "_make_submission_command",
            ["self", "submission_file_path"],
        ),
        (core.PicklingExecutor, "_submit_command", ["self", "command"]),
        (core.Job, "_register_in_watcher", ["self"]),
        (submitit_local.LocalExecutor, "_submit_command", ["self", "command"]),
        (submitit_local.LocalJob, "__init__", ["self", "folder", "job_id", "tasks", "process"]),
    ],
)
def test_hooks(owner: type, hook: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, hook)).parameters) == parameters


def test_the_executor_submits_our_script_with_our_words(srun: None, script: Path) -> None:
    calls: list[list[str]] = []

    def run(argv: list[str]) -> process.Result:
        calls.append(argv)
        return answer(argv, "57\n")

    command = sbatch.command(script, "x.abcd12345678", output="/runs/%j.out")
    assert submitit.submit(script, command=command, run=run) == "57"
    assert calls == [command]
    assert sorted(path.name for path in script.parent.iterdir()) == ["bin", "script.sbatch"]


def test_no_slurm_command_is_called_for_the_handle(srun: None, script: Path) -> None:
    watcher = submitit_slurm.SlurmJob.watcher
    before = watcher.num_calls
    executor = submitit.ScriptExecutor(
        script, command=["sbatch"], run=lambda argv: answer(argv, "57\n")
    )
    assert executor.submit_script().job_id == "57"
    assert watcher.num_calls == before
    assert executor._make_submission_file_text("", "") == script.read_text()


def test_an_unclear_answer_is_no_refusal(srun: None, script: Path) -> None:
    def submit(stdout: str, stderr: str, returncode: int) -> None:
        submitit.submit(
            script,
            command=["sbatch"],
            run=lambda argv: answer(argv, stdout, stderr=stderr, returncode=returncode),
        )

    with pytest.raises(submitit.UnknownOutcomeError):
        submit("", "", 0)
    with pytest.raises(submitit.RefusedError):
        refused = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
        submit("", refused, 1)


def test_without_slurm(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(errors.SlurmError, match="srun is not on PATH"):
        submitit.submit(script, command=["sbatch"], run=lambda argv: pytest.fail())


def test_the_local_executor_starts_nothing_by_itself(script: Path) -> None:
    """Its job is the one that our machine took, and no file of submitit's lies about."""
    executor = submitit.MachineExecutor(script, enter=lambda: "local-7")
    job = executor.submit_script()
    assert job.job_id == "local-7"
    assert [path.name for path in script.parent.iterdir()] == ["script.sbatch"]
