"""Execution of job scripts by bash, with a simulated srun and scontrol."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from orchestrator import jobs
from tests.flow.scripts.machine import TOKEN, Machine, wait_for


def _command(text: str) -> jobs.Launch:
    return jobs.Launch(command=text)


def _expected(**changes: object) -> dict[str, object]:
    return {
        "token": TOKEN,
        "job_id": "41",
        "task": 0,
        "attempt": 0,
        "rc": 0,
        "outcome": "end",
        "done": True,
        **changes,
    }


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_record_has_the_program_s_code(machine: Machine, code: int) -> None:
    result = machine.run(machine.render(launch=_command(f"echo hello; exit {code}")))
    assert result.returncode == code
    assert result.stderr == ""
    assert machine.record() == _expected(rc=code)
    banner, hello = result.stdout.splitlines()
    assert re.fullmatch(
        r"=== orchestrator job job 41 task 0 attempt 0 on n1"
        r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ===",
        banner,
    )
    assert hello == "hello"
    assert (machine.run_dir / "owner.0").read_text() == "41\n"
    assert re.fullmatch(r"41 n1 \d+\n", (machine.run_dir / "attempt.0.0").read_text())
    assert sorted(os.listdir(machine.run_dir)) == [
        "attempt.0.0",
        "environment.0.0",
        "exit.0.0.json",
        "owner.0",
        "script.sbatch",
    ]


def test_program_has_the_run_variables(machine: Machine) -> None:
    script = machine.render(launch=_command("env | grep ^ORCHESTRATOR_ | sort"))
    run_dir = machine.run_dir
    assert machine.run(script, SLURM_RESTART_COUNT="2").stdout.splitlines()[1:] == [
        "ORCHESTRATOR_ATTEMPT=2",
        f"ORCHESTRATOR_METRICS_FILE={run_dir}/metrics.jsonl",
        f"ORCHESTRATOR_REQUEUE_FILE={run_dir}/requeue.0.2",
        f"ORCHESTRATOR_RUN_DIR={run_dir}",
        f"ORCHESTRATOR_STOP_FILE={run_dir}/stop.0.2",
        "ORCHESTRATOR_TASK=0",
        f"ORCHESTRATOR_TOKEN={TOKEN}",
    ]


def test_a_set_up_that_leaves_makes_a_record_that_is_not_believed(machine: Machine) -> None:
    environment = jobs.Environment(setup="cd /nowhere 2>/dev/null || exit 4")
    result = machine.run(machine.render(environment=environment, launch=_command("echo run")))
    assert result.returncode == 4
    assert "run" not in result.stdout.splitlines()
    assert machine.record() == _expected(rc=4, done=False)


def test_kill_leaves_no_record(machine: Machine) -> None:
    # A scancel that had to end in SIGKILL: Slurm finds all processes by their cgroup.
    process = machine.start(machine.render(launch=_command("echo $BASHPID; exec sleep 60")))
    assert process.stdout is not None
    process.stdout.readline()
    group = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    os.killpg(group, signal.SIGKILL)
    process.communicate(timeout=120)
    assert machine.record() is None


def _running(group: int) -> list[str]:
    # From /proc: a bare Debian has no ps.
    result = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The command name is in parentheses and may contain anything (man 5 proc).
            state, _, pgrp = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            # A zombie process has a group too, and state Z.
            if int(pgrp) == group and state != "Z":
                result.append((folder / "cmdline").read_text(errors="replace").replace("\0", " "))
    return result


def _terminate(process: subprocess.Popen[str]) -> None:
    """Send TERM to the batch shell alone, as Slurm does, after the program has printed `ready`."""
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=120)


def test_term_reaches_all_of_a_shell_line(machine: Machine) -> None:
    line = "echo $BASHPID >pid; sleep 600; echo never"
    process = machine.start(machine.render(launch=_command(line)))
    pid = machine.folder / "work" / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), "the group of the line")
    group = int(pid.read_text())
    # A shell that has forked and not yet started sleep may lose the signal.
    wait_for(lambda: "sleep 600 " in _running(group), "sleep")
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert machine.record() == _expected(rc=143)
    assert re.fullmatch(r"TERM \d+\n", (machine.run_dir / "stop.0.0").read_text())
    wait_for(lambda: not _running(group), "the end of sleep")


def test_term_makes_no_success_of_a_program_that_saves_and_ends(machine: Machine) -> None:
    (machine.folder / "work" / "train.py").write_text(
        "import os, signal, sys, time\n"
        "def stop(*_):\n"
        "    open(os.environ['ORCHESTRATOR_REQUEUE_FILE'], 'w').close()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    launch = jobs.Launch(launcher="python", script="train.py")
    process = machine.start(machine.render(launch=launch))
    _terminate(process)
    assert process.returncode == 143
    assert machine.record() == _expected(rc=143)
    assert machine.calls("scontrol") == []


def test_term_is_left_to_slurm_where_srun_runs_the_tasks(machine: Machine) -> None:
    line = 'echo ready; until [ -e "$ORCHESTRATOR_STOP_FILE" ]; do sleep 0.05; done; exit 7'
    process = machine.start(machine.render(launch=jobs.Launch(launcher="srun", command=line)))
    _terminate(process)
    assert process.returncode == 7
    assert machine.record() == _expected(rc=7)


SAVES = (
    'echo ready; until [ -e "$ORCHESTRATOR_STOP_FILE" ]; do sleep 0.05; done;'
    ' touch "$ORCHESTRATOR_REQUEUE_FILE"; exit ${CODE:-0}'
)


def _usr1(machine: Machine, line: str, **changes: str) -> subprocess.CompletedProcess[str]:
    process = machine.start(machine.render(launch=_command(line)), **changes)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    os.kill(process.pid, signal.SIGUSR1)
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def test_usr1_lets_the_program_save_and_requeues_the_job(machine: Machine) -> None:
    result = _usr1(machine, SAVES)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"USR1 \d+\n", (machine.run_dir / "stop.0.0").read_text())
    assert machine.calls("scontrol") == [["requeue", "41"]]
    assert machine.record() == _expected(outcome="requeue")


def test_the_last_task_of_an_array_requeues_itself_alone(machine: Machine) -> None:
    # It has the array's own job ID.
    array = {"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "3"}
    assert _usr1(machine, SAVES, **array).returncode == 0
    assert machine.calls("scontrol") == [["requeue", "41_3"]]
    assert (machine.run_dir / "exit.3.0.json").exists()
    assert (machine.run_dir / "owner.3").read_text() == "41\n"


def test_a_program_that_fails_is_not_requeued(machine: Machine) -> None:
    assert _usr1(machine, SAVES, CODE="2").returncode == 2
    assert machine.calls("scontrol") == []
    assert machine.record() == _expected(rc=2)


def test_a_requeue_that_slurm_refuses_is_a_failure(machine: Machine) -> None:
    result = _usr1(machine, SAVES, FAKE_REQUEUE="1")
    assert result.returncode == 1
    assert result.stderr == "orchestrator: not requeued: scontrol refused it\n"
    assert machine.record() == _expected(rc=1)


def test_requeues_have_an_end(machine: Machine) -> None:
    result = _usr1(machine, SAVES, SLURM_RESTART_COUNT="20")
    assert result.returncode == 1
    assert result.stderr == (
        "orchestrator: not requeued after 20 restarts (ORCHESTRATOR_RESTART_LIMIT)\n"
    )
    assert machine.calls("scontrol") == []
    assert machine.record(attempt=20) == _expected(attempt=20, rc=1)


def _without_links(machine: Machine) -> None:
    (machine.folder / "bin" / "ln").write_text("#!/bin/sh\nexit 1\n")
    (machine.folder / "bin" / "ln").chmod(0o755)


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_second_job_with_the_token_runs_nothing(machine: Machine, links: bool) -> None:
    if not links:
        _without_links(machine)
    script = machine.render(launch=_command("echo run >>ran"))
    assert machine.run(script).returncode == 0
    before = sorted(os.listdir(machine.run_dir))
    result = machine.run(script, SLURM_JOB_ID="42")
    assert result.returncode == 75
    assert result.stdout == ""
    assert result.stderr == "orchestrator: duplicate of job 41: nothing was run\n"
    assert sorted(os.listdir(machine.run_dir)) == before
    assert (machine.folder / "work" / "ran").read_text() == "run\n"


def test_an_attempt_runs_once_and_the_next_one_runs(machine: Machine) -> None:
    script = machine.render(launch=_command("echo run >>ran"))
    assert machine.run(script).returncode == 0
    again = machine.run(script)
    assert again.returncode == 75
    assert again.stderr == "orchestrator: duplicate of job 41: nothing was run\n"
    assert machine.run(script, SLURM_RESTART_COUNT="1").returncode == 0
    assert machine.record(attempt=1) == _expected(attempt=1)
    assert (machine.run_dir / "attempt.0.1").exists()
    assert (machine.folder / "work" / "ran").read_text() == "run\nrun\n"


def test_attempt_that_starts_after_a_later_one_runs_nothing(machine: Machine) -> None:
    script = machine.render(launch=_command("echo run >>ran"))
    assert machine.run(script, SLURM_RESTART_COUNT="10").returncode == 0
    late = machine.run(script, SLURM_RESTART_COUNT="9")
    assert late.returncode == 75
    assert late.stderr == "orchestrator: attempt 10 has begun: nothing was run\n"
    assert (machine.folder / "work" / "ran").read_text() == "run\n"


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_only_one_of_many_jobs_runs(machine: Machine, links: bool) -> None:
    if not links:
        _without_links(machine)
    script = machine.render(launch=_command("echo run >>ran"))

    def run(number: int) -> int:
        return machine.run(script, SLURM_JOB_ID=str(100 + number)).returncode

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(run, range(8)))
    assert sorted(ends) == [0] + [75] * 7
    assert (machine.folder / "work" / "ran").read_text() == "run\n"


def test_script_run_manually_creates_its_own_folder(machine: Machine) -> None:
    script = machine.render(launch=_command("exit 3"))
    result = machine.run(script, SLURM_JOB_NAME="job", SLURM_JOB_ID="77")
    assert result.returncode == 3
    folder = machine.runs_dir / "job.77"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(os.listdir(folder)) == [
        "attempt.0.0",
        "environment.0.0",
        "exit.0.0.json",
        "owner.0",
    ]
    assert '"token":"77","job_id":"77"' in (folder / "exit.0.0.json").read_text()
    assert os.listdir(machine.run_dir) == ["script.sbatch"]


def test_a_job_that_was_renamed_is_known_by_its_log(machine: Machine) -> None:
    log = machine.run_dir / "41.out"
    process = machine.start(machine.render(launch=_command("true")))
    process.communicate(timeout=120)
    with log.open("w") as stdout:
        subprocess.run(
            ["bash", machine.folder / "slurm_script.41"],
            env=machine.environ(SLURM_JOB_NAME="renamed", SLURM_RESTART_COUNT="1"),
            stdout=stdout,
            check=True,
        )
    assert machine.record(attempt=1) == _expected(attempt=1)
    assert not (machine.runs_dir / "job.41").exists()


def test_without_a_place_for_the_run_folder_nothing_runs(machine: Machine) -> None:
    script = machine.render(launch=_command("touch ran"))
    shutil.rmtree(machine.runs_dir)
    machine.runs_dir.write_text("a file")
    result = machine.run(script, SLURM_JOB_NAME="job")
    assert result.returncode == 73
    assert result.stderr.splitlines()[-1] == (
        f"orchestrator: cannot make {machine.runs_dir}/job.41 on n1"
    )
    sent = machine.run(script)
    assert sent.returncode == 73
    assert sent.stderr.splitlines()[-1] == (
        f"orchestrator: there is no {machine.run_dir} on n1: nothing was run"
    )
    assert not (machine.folder / "work" / "ran").exists()


def test_a_folder_that_slurm_made_for_the_log_is_not_ours(machine: Machine) -> None:
    # On a node that does not see runs_dir, 24.11 makes the folder of --output by itself.
    (machine.run_dir / "script.sbatch").unlink()
    result = machine.run(machine.render(launch=_command("touch ran")))
    assert result.returncode == 73
    assert "nothing was run" in result.stderr
    assert not (machine.folder / "work" / "ran").exists()


def test_outside_of_slurm_is_an_error(machine: Machine) -> None:
    result = machine.run(machine.render(launch=_command("true")), SLURM_JOB_ID="")
    assert result.returncode == 78
    assert result.stderr == "orchestrator: not a Slurm job: run this script with sbatch\n"
