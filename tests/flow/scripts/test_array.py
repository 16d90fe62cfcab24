"""Arguments of each task in the script of an array."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator import config, errors, jobs
from orchestrator.controller.submission import job_scripts
from orchestrator.specs import arguments
from tests.flow.scripts import machine as machines

PRINT = "import json, sys; print(json.dumps(sys.argv[1:]))"


def _task(machine: machines.Machine, script: str, task: int, **changes: str) -> tuple[int, str]:
    done = machine.run(
        script,
        SLURM_JOB_ID=str(50 + task),
        SLURM_ARRAY_JOB_ID="41",
        SLURM_ARRAY_TASK_ID=str(task),
        **changes,
    )
    return done.returncode, done.stdout.splitlines()[-1] if done.returncode == 0 else done.stderr


def test_each_task_has_its_own_arguments(machine: machines.Machine) -> None:
    (machine.folder / "work" / "t.py").write_text(PRINT)
    hostile = 'it\'s $(touch pwned) `id` "x" *'
    script = machine.render(
        launch=jobs.Launch(launcher="python", script="t.py"),
        args={"epochs": 3, "lr": 0.5, "amp": True},
        array=jobs.Array(
            tasks=({"lr": 0.1}, {"tags": ("a b", hostile)}, {"amp": False, "batch_size": 64}, {})
        ),
    )
    outputs = [json.loads(_task(machine, script, task)[1]) for task in range(4)]
    assert outputs == [
        ["--epochs", "3", "--lr", "0.1", "--amp"],
        ["--epochs", "3", "--lr", "0.5", "--amp", "--tags", "a b", "--tags", hostile],
        ["--epochs", "3", "--lr", "0.5", "--batch-size", "64"],
        ["--epochs", "3", "--lr", "0.5", "--amp"],
    ]
    assert not (machine.folder / "work" / "pwned").exists()
    # One claim and one record a task, each with the task's own job ID.
    assert [(machine.run_dir / f"owner.{task}").read_text() for task in range(4)] == [
        f"{50 + task}\n" for task in range(4)
    ]


def test_a_task_that_the_script_does_not_know_runs_nothing(machine: machines.Machine) -> None:
    script = machine.render(
        launch=jobs.Launch(launcher="python", script="t.py"), array=jobs.Array(tasks=({}, {}))
    )
    assert _task(machine, script, 2) == (
        78,
        "orchestrator: no arguments for array task '2' in this script\n",
    )
    record = json.loads((machine.run_dir / "exit.2.0.json").read_text())
    assert (record["rc"], record["task"], record["job_id"]) == (78, 2, "52")


def test_an_array_of_a_size_reads_its_number_itself(machine: machines.Machine) -> None:
    script = machine.render(
        launch=jobs.Launch(command='echo "point $SLURM_ARRAY_TASK_ID"'),
        array=jobs.Array(size=3, max_running=1),
    )
    assert "#SBATCH --array=0-2%1\n" in script
    assert _task(machine, script, 2) == (0, "point 2")


def _request(tasks: int, text: str) -> job_scripts.Request:
    spec = jobs.JobSpec(
        name="sweep",
        launch=jobs.Launch(script="train.py"),
        args={"epochs": 3},
        array=jobs.Array(tasks=tuple({"seed": seed, "note": text} for seed in range(tasks))),
    )
    return job_scripts.Request(spec=spec, source="sweep.toml")


def test_a_thousand_tasks_fit_into_a_script_and_what_does_not_is_refused(tmp_path: Path) -> None:
    configuration = config.load(cwd=tmp_path, environ={"HOME": str(tmp_path)})
    script = job_scripts.render(configuration, _request(1000, "x" * 200), is_local=False).text
    assert script.count(") orchestrator_arguments=(--seed ") == 1000
    assert len(script.encode()) < 300_000
    with pytest.raises(errors.SpecError) as caught:
        job_scripts.render(configuration, _request(1000, "x" * 4300), is_local=False)
    assert str(caught.value).startswith("sweep.toml: the script has 43")
    assert "and Slurm accepts less than 4194304: split it into several arrays" in str(caught.value)


def test_shared_text_of_tasks_is_printed_once(machine: machines.Machine) -> None:
    spec = jobs.JobSpec(
        name="x", args={"a": 1, "b": 2}, array=jobs.Array(tasks=({"b": 3}, {"c": True}))
    )
    assert arguments.of_tasks(spec) == [["--b", "3"], ["--b", "2", "--c"]]
    assert arguments.of_tasks(jobs.JobSpec(name="x", array=jobs.Array(size=2))) is None
