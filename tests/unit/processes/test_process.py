"""Running commands: output, time limits, leftover processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from orchestrator.processes import process

ENVIRON = {"PATH": os.environ["PATH"]}


def wait_until(condition, what, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def is_bound(pid):
    infos = [path.read_text() for path in Path(f"/proc/{pid}/fdinfo").iterdir()]
    flags = [int(info.partition("flags:")[2].split()[0], 8) for info in infos]
    return any(flag & os.O_ASYNC for flag in flags)


def gone(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def test_answer():
    argv = ["sh", "-c", "cat; printf 'a\\377b\\n'; echo wrong >&2; exit 3"]
    answer = process.run(argv, 10, ENVIRON)
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, "a\ufffdb\n", "wrong\n")
    assert (answer.timed_out, answer.command) == (False, "sh")
    assert process.run(["sh", "-c", "kill -9 $$"], 10, ENVIRON).returncode == -signal.SIGKILL


def test_a_missing_command():
    with pytest.raises(process.CommandNotFound) as caught:
        process.run(["sbatch"], 10, {"PATH": "/nonexistent"})
    assert str(caught.value) == "sbatch could not be started: No such file or directory"
    with pytest.raises(process.CommandNotFound, match="NUL character"):
        process.run(["sbatch", "a\0b"], 10, ENVIRON)


def test_a_hung_command_is_ended_with_its_children(monkeypatch):
    monkeypatch.setattr(process, "_TERM_GRACE_SECONDS", 0.2)
    script = "sh -c 'echo $$; exec sleep 600' & trap '' TERM; echo $$; while :; do sleep 600; done"
    answer = process.run(["bash", "-c", script], 0.5, ENVIRON)
    assert answer.timed_out
    assert answer.returncode == -signal.SIGKILL
    assert answer.seconds < 10
    pids = [int(word) for word in answer.stdout.split()]
    assert len(pids) == 2
    wait_until(lambda: all(gone(pid) for pid in pids), "both ended")


def test_a_child_that_keeps_the_pipe_does_not_delay_the_result():
    answer = process.run(["sh", "-c", "sleep 600 & echo $!"], 60, ENVIRON)
    os.kill(int(answer.stdout), signal.SIGKILL)
    assert not answer.timed_out


def test_output_without_end_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(process, "_MAX_STDOUT_BYTES", 1024**2)
    before = time.monotonic()
    with pytest.raises(process.TooMuchOutputError) as caught:
        process.run(["cat", "/dev/zero"], 60, ENVIRON)
    assert str(caught.value) == "cat printed 1 MiB or more and was stopped"
    assert time.monotonic() - before < 30


def test_a_command_dies_with_its_parent(tmp_path):
    code = (
        "import os, sys\n"
        "from orchestrator.processes import process\n"
        f"argv = ['sh', '-c', 'sleep 600 & echo $! $$ > {tmp_path}/new; "
        f"mv {tmp_path}/new {tmp_path}/pids; wait']\n"
        "process.run(argv, 600, dict(os.environ), die_with_parent=True)\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root) as parent:
        wait_until((tmp_path / "pids").exists, "the command started", 30)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert not any(map(gone, pids))
        # On a busy machine the command may run before its parent has bound it to itself.
        wait_until(lambda: is_bound(parent.pid), "the parent bound the command", 60)
        parent.kill()
    wait_until(lambda: all(map(gone, pids)), "a wrapper and what it started ended with its caller")


def test_children_of_an_ended_command_live_on(tmp_path):
    fifo, output = tmp_path / "fifo", tmp_path / "told"
    os.mkfifo(fifo)
    line = f"(read word <{fifo}; echo $word >{output}) >/dev/null 2>&1 &"
    assert process.run(["sh", "-c", line], 60, ENVIRON, die_with_parent=True).returncode == 0
    # For both ways, so that it does not wait for a reader that is dead.
    descriptor = os.open(fifo, os.O_RDWR)
    os.write(descriptor, b"alive\n")
    wait_until(lambda: output.exists() and output.read_text() == "alive\n", "it was not killed")
    os.close(descriptor)


def test_from_a_thread():
    answers = []
    argv = ["sh", "-c", "echo hello"]
    thread = threading.Thread(
        target=lambda: answers.append(process.run(argv, 10, ENVIRON, die_with_parent=True))
    )
    thread.start()
    thread.join()
    assert answers[0].stdout == "hello\n"
