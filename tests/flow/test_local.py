"""Without Slurm: the command line as processes, with real runners that are killed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pty
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from orchestrator.local import machine, processes, records
from tests import zygote
from tests.flow import command_line

LINE = ("--scheduler", "local", "--launcher", "python")
#: Long enough to be observed; no test waits for its end.
LONG = "sleep 600"


@pytest.fixture
def here(
    tmp_path: Path,
    path_without_slurm: str,
    pycache: Path,
    forking: zygote.Zygote,
    location: str | None,
) -> Iterator[command_line.CommandLine]:
    """The orchestrator command on a machine without Slurm and without GPUs."""
    environ = {
        "PATH": path_without_slurm,
        "CUDA_VISIBLE_DEVICES": "",
        "ORCHESTRATOR_LOCAL_KILL_WAIT_SECONDS": "2",
    }
    yield (line := command_line.CommandLine(tmp_path, environ, pycache, location, forking))
    there = machine_of(line)
    for entry in there.spool.queue():
        there.cancel(entry.job_id, entry.name)
    line.wait_until(lambda: not there.spool.queue(), "the end of all jobs")


def machine_of(here: command_line.CommandLine) -> machine.Machine:
    return machine.Machine(folder=here.state_dir / "local")


def submit(here: command_line.CommandLine, command: str, *options: str) -> str:
    """Submit a shell line; return its job ID."""
    done = here("submit", "--name", "x", *LINE, *options, "--parsable", "--command", command)
    assert (done.code, done.err) == (0, "")
    return done.out.strip()


def entry_of(here: command_line.CommandLine, job_id: str) -> records.Entry | None:
    return machine_of(here).spool.live_entry(job_id.removeprefix("local-"))


def running(here: command_line.CommandLine, job_id: str) -> records.Entry:
    """Wait until the job's script has printed that it runs; return its entry."""

    def log_says_so() -> bool:
        entry = entry_of(here, job_id)
        if entry is None:
            gone = machine_of(here).spool.ended_entry(job_id.removeprefix("local-"))
            assert gone is None, "it ended before it was looked at"
            return False
        log = Path(entry.stdout_path)
        return log.exists() and "ready" in log.read_text()

    here.wait_until(log_says_so, f"{job_id} to run")
    entry = entry_of(here, job_id)
    assert entry is not None
    return entry


def test_a_program_is_submitted_by_its_name_alone(here: command_line.CommandLine) -> None:
    """Without a spec, a name or torch, and with the program's own exit code."""
    (here.folder / "train.py").write_text(
        "import os, sys\nprint('step=1 loss=0.5', flush=True)\nsys.exit(4 * len(sys.argv[1:]))\n"
    )
    for words in (("train.py",), ("--", "train.py"), ("--", "python3", "train.py")):
        done = here("submit", "--wait", *words)
        assert (done.code, done.out[-9:]) == (0, ", train)\n"), done.err
    rows = here("metrics", "train", "--name", "loss", "--format", "tsv").out.splitlines()
    assert [row.split("\t")[:3] for row in rows[1:]] == [["local-3", "loss", "0.5"]]
    failed = here("submit", "train.py", "--wait", "--", "again")
    assert failed.code == 1
    assert failed.err.endswith("Error: job local-4 ended FAILED, exit code 4:0\n")
    missing = here("submit", "--wait", "--", "no-such-program")
    assert "no-such-program: command not found on " in missing.err
    assert missing.err.endswith("Error: job local-5 ended FAILED, exit code 127:0\n")


def test_what_was_typed_is_saved_as_a_spec(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text("")
    typed = ("train.py", "--time-limit", "5", "--", "--lr", "0.1")
    saving = here("submit", *typed[:3], "--save-spec", "job.toml", "--dry-run", *typed[3:])
    assert (saving.code, saving.err) == (0, "Wrote job.toml\n")
    script, again = here("render", *typed).out, here("render", "job.toml").out
    assert script == saving.out
    assert script.replace("flags train.py --lr 0.1", "job.toml") == again
    text = (here.folder / "job.toml").read_text()
    refused = here("submit", "--save-spec", "job.toml", "--", "true")
    assert refused.code == 2
    assert refused.err.endswith("Error: --save-spec: job.toml exists: choose another name\n")
    assert (here.folder / "job.toml").read_text() == text
    assert here("status", "--all", "--json").items == []
    spaced = here(
        "submit", "--set", "launch.script=train.py", "--save-spec", "a b.toml", "--dry-run"
    )
    assert (spaced.code, spaced.err) == (0, "Wrote a b.toml\n")
    line = (here.folder / "a b.toml").read_text().splitlines()[1]
    assert line == "#   orchestrator submit 'a b.toml'"


def job(here: command_line.CommandLine, reference: str) -> dict:
    # What the last command saw may be younger than the floor, and older than what was waited for.
    (item,) = here("show", reference, "--refresh", "--json").items
    return item


def ended(here: command_line.CommandLine, job_id: str) -> tuple[str, str]:
    """Wait for the end; return state and exit code."""
    here.wait_until(lambda: entry_of(here, job_id) is None, f"the end of {job_id}")
    item = job(here, job_id)
    return item["state"], f"{item['exit_code']}:{item['exit_signal']}"


def is_alive(pid: int) -> bool:
    return processes.start_ticks(pid) is not None


def script_of(entry: records.Entry) -> int:
    """Return the PID of the job's shell; the runner also gets what the shell leaves behind."""
    assert entry.runner is not None
    (shell,) = [
        pid
        for pid in processes.descendants(entry.runner.pid)
        if b"script.sbatch" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and f"PPid:\t{entry.runner.pid}\n" in Path(f"/proc/{pid}/status").read_text()
    ]
    return shell


def in_terminal(
    argv: list[str], here: command_line.CommandLine, *, read: bool = True
) -> tuple[int, int]:
    """Start a process on a new terminal; return the other end of the terminal and the PID."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(here.folder)
        os.execve(argv[0], argv, here.environ)
    if read:
        threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    return terminal, pid


def drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


def test_a_job_from_its_submission_to_its_end(here):
    spec = here.spec(
        '''
[job]
name = "first"
partition = "accel"
time_limit = "5"
[resources]
mem = "4G"
cpus_per_task = 2
[environment]
variables = { GREETING = "it's five" }
[launch]
command = """
echo "$GREETING: $SLURM_JOB_ID $SLURM_JOB_NUM_NODES $SLURM_CPUS_PER_TASK $PWD"
umask
echo "Epoch Throughput: 12.500 images/second"
exit 3
"""
'''
    )
    done = here("submit", spec, "--wait", prefix=["sh", "-c", 'umask 027 && exec "$@"', "sh"])
    assert done.code == 1
    assert done.out == "Submitted batch job local-1 (@1, first)\n"
    talk = done.err.splitlines()
    assert talk[:2] == [
        f"No sbatch on PATH: the job runs on this machine, {socket.gethostname()}",
        "Ignored without Slurm: job.partition, resources.mem",
    ]
    begun = next(number for number, line in enumerate(talk) if line.startswith("Job: "))
    assert talk[begun - 1][9:] == f"local-1 FAILED on {socket.gethostname()}"
    assert talk[begun:] == [
        *here("explain", "local-1").out.splitlines(),
        "Error: job local-1 ended FAILED, exit code 3:0",
    ]
    item = job(here, "local-1")
    assert item["cluster"] == f"local:{socket.gethostname()}"
    assert item["scheduler"] == "local"
    assert (item["state"], item["exit_code"], item["exit_signal"]) == ("FAILED", 3, 0)
    assert (item["time_limit_seconds"], item["nodes"], item["gpus"]) == (300, 1, 0)
    assert item["stdout_path"] == f"{item['run_dir']}/local-1.out"
    assert [event["source"] for event in item["events"]][:2] == ["user", "machine"]
    banner, *log = here("logs", "first").out.splitlines()
    assert banner.startswith("=== orchestrator first job 1 task 0 attempt 0 on ")
    assert log[:2] == [f"it's five: 1 1 2 {here.folder}", "0027"]
    assert here("show", "1").code == 4, "an ID of Slurm's is another"
    assert here("metrics", "first", "--name", "throughput", "--json").items[0]["value"] == 12.5
    spool_folder = here.state_dir / "local"
    for path in (spool_folder, *spool_folder.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_submit_returns_at_once_and_holds_no_pipe(here):
    begun = time.monotonic()
    done = here.run(
        [
            "bash",
            "-c",
            f"x=$({sys.executable} -m orchestrator submit --name x --scheduler local "
            f'--launcher python --parsable --command "echo ready; {LONG}"); echo "got $x"',
        ]
    )
    assert (done.code, done.out, done.err) == (0, "got local-1\n", "")
    assert time.monotonic() - begun < 60, "far less than the job takes"
    entry = running(here, "local-1")
    shell = script_of(entry)
    descriptors = {number: os.readlink(f"/proc/{shell}/fd/{number}") for number in (0, 1, 2)}
    assert descriptors == {0: "/dev/null", 1: entry.stdout_path, 2: entry.stdout_path}
    run_dir = str(Path(entry.stdout_path).parent)
    for who, files in ((entry.keeper, set()), (entry.runner, {run_dir})):
        opened = [os.readlink(path) for path in Path(f"/proc/{who.pid}/fd").iterdir()]
        assert set(opened) == {"/dev/null", *files}
        assert os.getsid(who.pid) == entry.keeper.pid


@pytest.mark.parametrize("how", ["ctrl-c", "hang-up"])
def test_the_end_of_the_submitting_terminal_leaves_the_job_alone(here, how):
    line = f"echo ready; {LONG}"
    argv = ["submit", "--name", "x", *LINE, "--wait", "--command", line]
    argv = [sys.executable, "-m", "orchestrator", *argv]
    # A read that is under way would keep the terminal open.
    terminal, process = in_terminal(argv, here, read=how == "ctrl-c")
    entry = running(here, "local-1")
    # The line discipline sends SIGINT to the whole foreground group of the terminal, and the kernel
    # SIGHUP when its other end is closed.
    if how == "ctrl-c":
        os.write(terminal, b"\x03")
        _, status = os.waitpid(process, 0)
    os.close(terminal)
    if how == "hang-up":
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == (130 if how == "ctrl-c" else -signal.SIGHUP)
    assert entry.runner.is_alive() and entry.keeper.is_alive()
    assert job(here, "local-1")["state"] == "RUNNING"


ORPHAN = "setsid -f sleep 601; sleep 602 & echo $! ready; wait"


@pytest.mark.parametrize("victims", [("runner",), ("keeper",), ("runner", "keeper")])
def test_a_killed_runner(here, victims):
    job_id = submit(here, ORPHAN)
    after = submit(here, "echo after")
    entry = running(here, job_id)
    left = processes.descendants(entry.runner.pid)
    assert len(left) == 4
    for victim in victims:
        os.kill(getattr(entry, victim).pid, signal.SIGKILL)
    if victims == ("keeper",):
        time.sleep(0.3)
        assert job(here, job_id)["state"] == "RUNNING"
        assert all(map(is_alive, left))
        assert here("cancel", job_id).code == 0
        assert ended(here, job_id) == ("CANCELLED", "143:0")
    else:
        if victims == ("runner",):
            # No command has to run.
            here.wait_until(lambda: entry_of(here, after) is None, "the next job")
        else:
            assert job(here, job_id)["state"] == "LOST"
        assert ended(here, job_id) == ("LOST", "0:0")
        item = job(here, job_id)
        assert item["reason"].startswith(
            f"its runner on {socket.gethostname()} ended unexpectedly: "
        )
    assert not any(map(is_alive, left))
    assert ended(here, after) == ("COMPLETED", "0:0")


def test_a_killed_shell_and_a_killed_process_of_it(here):
    job_id = submit(here, ORPHAN)
    entry = running(here, job_id)
    left = processes.descendants(entry.runner.pid)
    os.kill(script_of(entry), signal.SIGKILL)
    assert ended(here, job_id) == ("FAILED", "0:9")
    assert not any(map(is_alive, left))

    job_id = submit(here, "sleep 600 & echo ready $! ; wait $!; exit $?")
    entry = running(here, job_id)
    rank = int(Path(entry.stdout_path).read_text().split("ready ")[1])
    os.kill(rank, signal.SIGKILL)
    assert ended(here, job_id) == ("FAILED", "137:0")


@pytest.mark.parametrize("count", [12, pytest.param(50, marks=pytest.mark.slow)])
def test_many_at_once_run_one_after_another(here, count):
    """In the order of their IDs, one at a time, none lost; 7 at a time are submitted."""
    ledger = here.home / "ledger"
    line = f'echo "begin $SLURM_JOB_ID" >>{ledger}; echo "end $SLURM_JOB_ID" >>{ledger}'
    first = submit(here, f"echo ready; while [ ! -e {here.home}/go ]; do sleep 0.1; done; {line}")
    argv = ("submit", "--name", "y", *LINE, "--parsable", "--command", line)
    with futures.ThreadPoolExecutor(7) as submitters:
        for done in submitters.map(lambda _: here(*argv), range(count - 1)):
            assert (done.code, done.err) == (0, "")
    assert len(machine_of(here).spool.queue()) == count
    running(here, first)
    (here.home / "go").touch()
    deadline = time.monotonic() + 120
    while machine_of(here).spool.queue():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    expected = [f"{word} {number}" for number in range(1, count + 1) for word in ("begin", "end")]
    assert ledger.read_text().splitlines() == expected
    rows = here("status", "--all", "--json", "--limit", "100").items
    assert [row["state"] for row in rows] == ["COMPLETED"] * count


def test_the_time_limit_is_kept_from_the_start_of_the_job(here):
    """The second job is queued for longer than its limit, and gets its signal before the end."""
    script = here.folder / "stubborn.sh"
    script.write_text("trap '' TERM; echo ready; sleep 600; sleep 601\n")
    first = submit(here, f"while [ ! -e {here.home}/go ]; do sleep 0.1; done")
    second = here(
        "submit",
        "--name",
        "late",
        *LINE,
        "--set",
        "job.time_limit=0:03",
        "--signal-seconds",
        "1",
        "--parsable",
        "--command",
        f"bash {script}",
    ).out.strip()
    waiting = entry_of(here, second)
    assert waiting.state == "PENDING"
    here.wait_until(lambda: time.time() > waiting.submitted_at + 3.5, "longer than its limit")
    (here.home / "go").touch()
    assert ended(here, second) == ("TIMEOUT", "0:9")
    assert ended(here, first) == ("COMPLETED", "0:0")
    item = job(here, second)
    assert 5 <= item["elapsed_seconds"] <= 30, "3 s, and 2 s until KILL; a busy machine is late"
    log = Path(item["stdout_path"]).read_text()
    assert log.rstrip().endswith(" DUE TO TIME LIMIT ***")
    stop = Path(item["run_dir"], "stop.0.0").read_text()
    assert stop.startswith("USR1 ")
    assert not processes.marked(machine.MARK, f"{Path(item['run_dir']).name[-12:]}.0.0")


def test_cancel_hold_release_and_requeue(here):
    first = submit(here, f"setsid -f sleep 601; trap 'echo told' TERM; echo ready; {LONG}")
    second, third = submit(here, "echo two"), submit(here, "echo three")
    fourth = submit(here, "echo four >&2")
    entry = running(here, first)
    left = processes.descendants(entry.runner.pid)
    rows = {row["job_id"]: row for row in here("status", "--json").items}
    assert [rows[name]["reason"] for name in (second, third)] == ["Resources", "Priority"]

    done = here("cancel", third)
    assert (done.code, done.out) == (0, f"{third} is CANCELLED\n")
    done = here("hold", second)
    assert (done.code, done.out) == (0, f"{second} is PENDING (JobHeldUser)\n")
    done = here("cancel", first)
    assert (done.code, done.out) == (0, f"{first} is CANCELLED\n")
    assert not any(map(is_alive, left))
    assert ended(here, fourth) == ("COMPLETED", "0:0"), "it overtakes the one that is held"
    assert job(here, second)["state"] == "PENDING"
    assert here("release", second).code == 0
    assert ended(here, second) == ("COMPLETED", "0:0")

    done = here("requeue", "--hold", second)
    assert (done.code, done.out) == (0, f"{second} is PENDING (JobHeldUser)\n")
    assert here("release", second).code == 0
    assert here("wait", second).code == 0
    item = job(here, second)
    assert (item["state"], item["attempt"], item["restart_count"]) == ("COMPLETED", 1, 1)
    assert [attempt["state"] for attempt in item["attempts"]] == ["COMPLETED", "COMPLETED"]
    log = Path(item["stdout_path"]).read_text()
    assert "attempt 0 on" in log and "attempt 1 on" in log

    again = here("resubmit", third)
    assert again.code == 0, again.err
    assert here("wait", "x").code == 0


def test_a_program_that_asks_to_be_requeued(here):
    job_id = submit(
        here, 'if [ "$ORCHESTRATOR_ATTEMPT" = 0 ]; then touch "$ORCHESTRATOR_REQUEUE_FILE"; fi'
    )
    assert here("wait", job_id).code == 0
    item = job(here, job_id)
    assert (item["state"], item["attempt"]) == ("COMPLETED", 1)
    assert [attempt["state"] for attempt in item["attempts"]] == ["REQUEUED", "COMPLETED"]


def test_a_reused_pid_and_a_reboot(here):
    """The spool names processes that are gone: one PID is another's now, one boot is over."""
    job_id = submit(here, f"echo ready; {LONG}")
    entry = running(here, job_id)
    shell = script_of(entry)
    files = machine_of(here).spool
    with files.locked():
        stranger = processes.identify(os.getpid())
        recycled = dataclasses.replace(stranger, start_ticks=stranger.start_ticks - 1)
        files.put(dataclasses.replace(entry, keeper=recycled, runner=recycled))
    assert ended(here, submit(here, "true")) == ("COMPLETED", "0:0")
    item = job(here, job_id)
    assert (item["state"], item["reason"].rpartition(": ")[2]) == ("LOST", "it was killed")
    assert not is_alive(shell), "the next command ends what it left"

    job_id = submit(here, f"echo ready; {LONG}")
    entry = running(here, job_id)
    before = {
        name: dataclasses.replace(getattr(entry, name), boot_id="of yesterday")
        for name in ("keeper", "runner")
    }
    with files.locked():
        files.put(dataclasses.replace(entry, **before))
    item = job(here, job_id)
    assert item["state"] == "LOST"
    assert item["reason"].endswith(": the machine was restarted")
    os.kill(entry.runner.pid, signal.SIGTERM)
    here.wait_until(lambda: not entry.keeper.is_alive(), "the end of the job that was only played")


def test_a_waiting_job_starts_after_a_reboot(here):
    """The process that put it into the line died before it started anything."""
    first = submit(here, f"echo ready; {LONG}")
    second = submit(here, "echo two")
    entry = running(here, first)
    for who in (entry.runner, entry.keeper):
        os.kill(who.pid, signal.SIGKILL)
    assert here("wait", second).code == 0


def test_another_machine_with_the_same_state(here, monkeypatch):
    job_id = submit(here, f"echo ready; {LONG}")
    running(here, job_id)
    other = machine.Machine(folder=here.state_dir / "local", host="elsewhere")
    assert other.squeue(lambda *_: True) == []
    entry = entry_of(here, job_id)
    other.cancel(job_id, entry.name)
    refused = other.change("hold", [job_id])
    assert refused == {job_id: "it has ended, or there is no such job on this machine"}
    assert entry_of(here, job_id).runner.is_alive()

    with sqlite3.connect(here.database) as connection:
        connection.execute("UPDATE submissions SET cluster = 'local:elsewhere'")
    connection.close()
    done = here("status")
    assert "RUNNING" in done.out or "PENDING" in done.out
    assert done.err.endswith(
        ": jobs of elsewhere are updated only there: run `orchestrator status` there\n"
    )
    for verb in ("wait", "cancel", "hold"):
        done = here(verb, job_id)
        assert (done.code, done.out) == (6, "")
        assert done.err.startswith(f"Error: {job_id} belongs to cluster local:elsewhere and this ")


def test_a_job_that_submits_a_job(here):
    inner = (
        f"{sys.executable} -m orchestrator submit --name inner --scheduler local "
        "--launcher python --parsable --command 'echo ready; sleep 600'"
    )
    outer = here(
        "submit",
        "--name",
        "outer",
        *LINE,
        "--parsable",
        "--command",
        inner,
        ORCHESTRATOR_LOCAL_SLOTS="2",
    )
    assert outer.code == 0, outer.err
    assert ended(here, "local-1") == ("COMPLETED", "0:0")
    entry = running(here, "local-2")
    assert entry.keeper.is_alive()


def test_gpus_are_given_out(here):
    environ = {"CUDA_VISIBLE_DEVICES": "4,5,6"}
    line = 'echo "gpus $CUDA_VISIBLE_DEVICES of $SLURM_GPUS_ON_NODE"; echo ready; sleep 600'

    def ask(count):
        return here(
            "submit",
            "--name",
            f"g{count}",
            *LINE,
            "--gpus-per-node",
            str(count),
            "--parsable",
            "--command",
            line,
            **environ,
        )

    for count in (2, 1):
        assert ask(count).code == 0
    assert "gpus 4,5 of 2" in Path(running(here, "local-1").stdout_path).read_text()
    assert "gpus 6 of 1" in Path(running(here, "local-2").stdout_path).read_text()
    assert ask(3).code == 0
    assert ask(1).code == 0
    assert here("cancel", "local-2").code == 0
    states = [entry.state for entry in machine_of(here).spool.queue()]
    assert states == ["RUNNING", "PENDING", "PENDING"], "nobody overtakes"
    done = ask(4)
    assert done.code == 3
    assert done.err == (
        "Error: scheduler local: resources.gpus_per_node: 4 GPUs requested, but this machine has 3 "
        "for jobs: request fewer, check local_slots and CUDA_VISIBLE_DEVICES, or run on the CPU "
        "with CUDA_VISIBLE_DEVICES=\n"
        "1 problem; nothing was submitted.\n"
    )
    assert len(here.rows()) == 4, "it was not even stored"


def test_jobs_that_depend_on_others(here):
    first = submit(here, f"echo ready; while [ ! -e {here.home}/go ]; do sleep 0.1; done; exit 3")
    good = submit(here, "true", "--dependency", f"afterok:{first}")
    after = submit(here, "true", "--dependency", f"afternotok:{first}")
    last = submit(here, "true", "--dependency", f"afterok:{after},afterany:{first}")
    free = submit(here, "true")
    running(here, first)
    rows = {row["job_id"]: row["reason"] for row in here("status", "--json").items}
    assert rows == {
        first: "None",
        **dict.fromkeys((good, after, last), "Dependency"),
        free: "Resources",
    }
    (here.home / "go").touch()
    for job_id in (after, last, free):
        assert ended(here, job_id) == ("COMPLETED", "0:0")
    assert ended(here, first) == ("FAILED", "3:0")
    item = job(here, good)
    assert (item["state"], item["reason"]) == ("PENDING", "DependencyNeverSatisfied")
    resubmitted = here("resubmit", free, "--parsable")
    assert (resubmitted.code, resubmitted.out) == (0, "local-6\n")

    done = here("submit", "--name", "x", *LINE, "--dependency", "afterok:local-77", "--", "true")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        "Error: job local-77 is not in this machine's queue, or was removed from it: "
        "`orchestrator status --all` lists all jobs. Nothing was submitted.\n"
    )
    done = here(
        "render",
        "--scheduler",
        "slurm",
        "--name",
        "x",
        "--dependency",
        "after:local-1",
        "--",
        "true",
    )
    assert done.code == 3
    assert "local-1 is a local job; a job ID of Slurm is a number" in done.err
    assert len(here.rows()) == 6


def test_prerequisites_of_a_new_job_are_not_removed(here):
    first = submit(here, "true")
    assert ended(here, first) == ("COMPLETED", "0:0")
    files = machine_of(here).spool
    entry = files.ended_entry(first.removeprefix("local-"))
    assert entry is not None
    past = dataclasses.replace(entry.ended[-1], ended_at=time.time() - 40 * 86400)
    with files.locked():
        files.put(dataclasses.replace(entry, ended=(past,)))
        files.folder.joinpath("cleared").unlink(missing_ok=True)
    second = submit(here, "true", "--dependency", f"afterok:{first}")
    assert files.folder.joinpath("cleared").exists()
    assert ended(here, second) == ("COMPLETED", "0:0")


@pytest.mark.parametrize(
    ("flags", "key", "cure"),
    [
        (("--nodes", "2"), "resources.nodes", "--set resources.nodes=1"),
        (
            ("--launcher", "srun", "--gpus-per-node", "2"),
            "launch.launcher",
            "--set launch.launcher=torchrun",
        ),
        (("--dependency", "afterok:1"), "job.dependency", "local job IDs look like local-7"),
    ],
)
def test_submissions_that_one_machine_cannot_run(here, flags, key, cure):
    done = here("submit", "--name", "x", *flags, "--", "train.py")
    assert done.code == 3
    assert f"scheduler local: {key}: " in done.err
    assert cure in done.err
    assert here.rows() == []
    assert here("render", "--scheduler", "slurm", "--name", "x", *flags, "--", "train.py").code == 0


def test_slurm_is_used_if_it_is_present(cli):
    assert cli("submit", "--name", "x", "--parsable", "--", "true").out == "1\n"
    done = cli(
        "submit",
        "--name",
        "x",
        "--parsable",
        "--launcher",
        "python",
        "--",
        "true",
        ORCHESTRATOR_SCHEDULER="local",
        CUDA_VISIBLE_DEVICES="",
    )
    assert (done.code, done.out) == (0, "local-1\n")
    assert cli("wait", "local-1").code == 0
    rows = cli("status", "--json", "--all").items
    assert [(row["job_id"], row["scheduler"]) for row in rows] == [
        ("local-1", "local"),
        ("1", "slurm"),
    ]


def test_auto_selects_this_machine_but_not_with_a_profile_of_a_cluster(here):
    argv = ("submit", "--name", "x", "--launcher", "python", "--parsable", "--", "true")
    done = here(*argv)
    assert (done.code, done.out) == (0, "local-1\n")
    assert done.err == f"No sbatch on PATH: the job runs on this machine, {socket.gethostname()}\n"
    assert here("submit", "--name", "x", "--test-only", "--", "a.py").out.startswith(
        "slots of this machine: 1; jobs in the queue: "
    )
    done = here(*argv, ORCHESTRATOR_PARTITION="accel")
    assert (done.code, done.out) == (5, "")
    missing = (
        "Error: scontrol could not be started: No such file or directory. On a cluster, use a "
        "login node and put Slurm's commands on PATH (load the Slurm module)."
    )
    advice = " To run it on this machine, without Slurm, add --scheduler local."
    assert done.err == f"{missing}{advice}\n"
    # A command without that option does not advise it.
    done = here("config", "init")
    assert (done.code, done.err) == (
        5,
        f"{missing} Without Slurm no profile is needed: jobs run on this machine.\n",
    )
    assert len(here.rows()) == 1


def test_submit_killed_before_the_job_is_stored(here):
    """The job is in the spool and its row has no ID: the next refresh finds it by its token."""
    job_id = submit(here, f"echo ready; {LONG}")
    running(here, job_id)
    with sqlite3.connect(here.database) as connection:
        connection.execute(
            "UPDATE jobs SET job_id = NULL, raw_job_id = NULL, state = 'SUBMITTING',"
            " submitter_pid = 1, submitter_start_ticks = 1"
        )
    connection.close()
    item = job(here, "@1")
    assert (item["job_id"], item["state"]) == (job_id, "RUNNING")


def test_an_array_runs_as_tasks(here):
    spec = here.spec(
        """
[job]
name = "grid"
[launch]
launcher = "python"
script = "./task.sh"
[array]
max_running = 2
tasks = [{ lr = 1 }, { lr = 2 }, { lr = 3 }, { lr = 4 }]
"""
    )
    (here.folder / "task.sh").write_text(
        "#!/bin/sh\n"
        'echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, job $SLURM_JOB_ID: $*"\n'
        'echo ready; [ "$SLURM_ARRAY_TASK_ID" != 2 ] || exit 3\n'
        f"while [ ! -e {here.home}/go ]; do sleep 0.1; done\n"
    )
    (here.folder / "task.sh").chmod(0o755)
    before = submit(here, "true")
    done = here("submit", spec, "--scheduler", "local", "--parsable", ORCHESTRATOR_LOCAL_SLOTS="3")
    assert (done.code, done.out, done.err) == (0, "local-2\n", "")
    assert ended(here, before) == ("COMPLETED", "0:0")
    for task in (0, 1):
        running(here, f"local-2_{task}")
    states = [entry.state for entry in machine_of(here).spool.queue()]
    assert states == ["RUNNING", "RUNNING", "PENDING", "PENDING"], "two at a time, of three slots"
    assert here("cancel", "local-2_3").code == 0
    assert here("hold", "local-2_2").code == 0
    (here.home / "go").touch()
    assert ended(here, "local-2_1") == ("COMPLETED", "0:0")
    assert here("release", "local-2_2").code == 0
    assert ended(here, "local-2_2") == ("FAILED", "3:0")
    rows = {row["job_id"]: row for row in here("status", "--all", "--json").items}
    assert {name: row["state"] for name, row in rows.items() if row["array_job_id"]} == {
        "local-2_0": "COMPLETED",
        "local-2_1": "COMPLETED",
        "local-2_2": "FAILED",
        "local-2_3": "CANCELLED",
    }
    assert rows["local-2_1"]["array_job_id"] == "local-2"
    log = here("logs", "local-2_1").out.splitlines()
    assert log[1] == "task 1 of 4, job 3: --lr 2"
    assert rows["local-2_1"]["stdout_path"].endswith("/local-2_1.out")

    done = here("resubmit", "local-2_[2-3]")
    assert done.code == 0, done.err
    assert ended(here, "local-6_3") == ("COMPLETED", "0:0")
    assert ended(here, "local-6_2") == ("FAILED", "3:0")


BATCH = """#!/bin/bash
#SBATCH --job-name=filed --time=0:30 --gres=gpu:2 -c 3
#SBATCH --output=filed-%j.txt --partition=accel --signal=B:USR1@5
echo "$CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK $SLURM_JOB_NUM_NODES $#: $1"
{last}
"""


def test_a_batch_file_runs_here(here):
    """With what its #SBATCH lines ask for, and its own arguments."""
    path = here.folder / "filed.sbatch"
    path.write_text(BATCH.format(last="exit 3"))
    gpus = {"CUDA_VISIBLE_DEVICES": "4,5,6"}
    options = ("--scheduler", "local", "--parsable", "--time-limit", "1")
    done = here("submit", *options, path, "--", "a b", "--flag", **gpus)
    assert (done.code, done.out) == (0, "local-1\n"), done.err
    assert "Ignored without Slurm: job.partition\n" in done.err
    entry = entry_of(here, "local-1") or machine_of(here).spool.ended_entry("1")
    request = machine_of(here).spool.request(entry.token)
    assert (request.time_limit_seconds, request.signal_seconds) == (60, 5)
    assert ended(here, "local-1") == ("FAILED", "3:0")
    assert here("logs", "filed", "--path").out == f"{here.folder}/filed-local-1.txt\n"
    assert here("logs", "filed").out.splitlines()[1] == "4,5 3 1 2: a b"
    again = here("resubmit", "local-1", "--parsable", **gpus)
    assert ended(here, again.out.strip()) == ("FAILED", "3:0")
    assert here("logs", again.out.strip()).out.splitlines()[1] == "4,5 3 1 2: a b"


@pytest.mark.parametrize(
    ("last", "flags", "message"),
    [
        ("srun python train.py", (), "srun python train.py: srun needs Slurm"),
        ("  time A=b srun hostname", (), "srun needs Slurm"),
        ("true", ("--nodes", "2"), "2 nodes requested, but this is one machine"),
        ("true", ("--gres", "gpu:4"), "4 GPUs requested, but this machine has 3 for jobs"),
        ("true", ("--dependency", "afterok:12"), "12 is a job ID of Slurm"),
    ],
)
def test_a_batch_file_that_needs_slurm(here, last, flags, message):
    path = here.folder / "filed.sbatch"
    path.write_text(BATCH.format(last=last))
    done = here("submit", "--scheduler", "local", *flags, path, CUDA_VISIBLE_DEVICES="0,1,2")
    assert done.code == 3
    assert message in done.err
    assert here.rows() == []


FAILS = """echo step 1 loss 2.3
echo '[rank1]: Traceback (most recent call last):'
echo '[rank1]:   File "/home/alice/train.py", line 7, in load'
echo '[rank1]:     raise ValueError("no label")'
echo '[rank1]: ValueError: no label'
echo '[rank0]: RuntimeError: Connection closed by peer [10.0.0.2]:4711'
exit 1"""


def test_a_setup_that_fails_is_explained(here: command_line.CommandLine) -> None:
    (here.folder / "spec.toml").write_text(
        '[job]\nname = "x"\n[environment]\nsetup = """\nexport A=1\ncd /nonexistent\n"""\n'
        '[launch]\nlauncher = "python"\ncommand = "touch begun"\n'
    )
    job_id = here("submit", "--scheduler", "local", "--parsable", "spec.toml").out.strip()
    assert ended(here, job_id) == ("FAILED", "78:0")
    (item,) = here("explain", job_id, "--json").items
    what = "environment.setup failed in line 2: 'cd /nonexistent' ended with exit code 1"
    assert (item["cause"], item["summary"]) == (
        "setup_failed",
        f"{what} (append || true if it may fail)",
    )
    assert not (here.folder / "begun").exists()


def test_a_failure_is_explained_and_its_cause_kept(here: command_line.CommandLine) -> None:
    job_id = submit(here, FAILS)
    assert here("wait", job_id).code == 1
    (job,) = here("status", "--all", "--json").items
    assert job["cause"] == "python_exception"
    done = here("explain", job_id, "--format", "table")
    log = job["stdout_path"]
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"Job:       {job_id} (@1) x, FAILED\n"
        "Cause:     python_exception: ValueError in /home/alice/train.py, line 7: no label "
        "(first on rank 1)\n"
        f"Evidence:  {log}:6: [rank1]: ValueError: no label\n"
        "           FAILED, exit code 1:0\n"
        f"Traceback of rank 1 ({log}:3):\n"
        "  Traceback (most recent call last):\n"
        '    File "/home/alice/train.py", line 7, in load\n'
        '      raise ValueError("no label")\n'
        "  ValueError: no label\n"
        "Fix:       - see the traceback; the innermost line of your own code comes last\n"
        "Also:      peer_lost: a rank lost its connection to another rank, which ended first "
        f"({log}:7)\n"
    )
    shown = here("show", job_id, "--format", "table").out
    assert f"\nCause:       python_exception (see `orchestrator explain {job_id}`)\n" in shown
    # Reported once.
    assert shown.count("python_exception: ValueError in") == 1
    assert here("explain", job_id, "--attempt", "3").code == 4
    assert here("explain").code == 2
    (item,) = here("explain", "--log", log, "--json").items
    assert (item["cause"], item["evidence"][0]["line"]) == ("python_exception", 6)


TRAIN = """\
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for name in ("lr", "seed", "epochs"):
    parser.add_argument(f"--{name}", type=float)
args = parser.parse_args()
if args.lr == 9:
    sys.exit(3)
for epoch in (1, 2, 3):
    print(f"epoch={epoch} loss={args.lr / epoch + args.seed / 100:.4f}")
    # The accuracy falls after the second epoch.
    accuracy = 0.9 - args.lr - args.seed / 1000 - (0.2 if epoch != 2 else 0)
    record = {"name": "val_accuracy", "value": accuracy, "epoch": epoch}
    with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
        print(json.dumps(record), file=file)
"""
SWEEP = """\
[job]
name = "grid"
time_limit = "5"
[launch]
launcher = "python"
script = "train.py"
[sweep]
kind = "grid"
axes.args.lr = [0.1, 0.3, 9]
axes.args.seed = [1, 2]
"""


def test_results_of_a_sweep(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text(TRAIN)
    assert here("sweep", "submit", here.spec(SWEEP), "--wait").code == 1
    options = ("--metric", "val_accuracy:best", "--metric", "train_loss@val_acc")
    done = here("sweep", "results", "grid", *options, "--format", "table")
    assert (done.code, [line.rstrip() for line in done.out.splitlines()]) == (
        0,
        [
            "RANK  POINT  LR   VAL_ACCURACY:BEST  LOSS@VAL_ACCURACY  RUNS  STATE",
            "1     1      0.1  0.7985 ± 0.0064    0.065 ± 0.064      2     COMPLETED",
            "2     3      0.3  0.5985 ± 0.0064    0.165 ± 0.064      2     COMPLETED",
            "      5      9                                          0/2   FAILED",
        ],
    )
    assert done.err == (
        "val_accuracy:best: largest value of each run; higher is better\n"
        "loss@val_accuracy: loss where val_accuracy is highest; lower is better\n"
        "Rows are means over seed; ± is the 95 % confidence interval of the mean (Student's t)\n"
        "Not counted: 2 FAILED runs\n"
    )
    done = here("sweep", "results", "grid", *options, "--output", "best.csv", "--best", "1")
    assert done.out == ""
    head, best = (here.folder / "best.csv").read_text().splitlines()
    assert head.startswith("rank,point,lr,val_accuracy:best,val_accuracy:best_low,")
    assert best.startswith("1,1,0.1,0.7985,")
