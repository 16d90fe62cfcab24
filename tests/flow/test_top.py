"""`orchestrator top` in a real terminal: tmux, signals, colours, and terminals that cannot."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests import terminals
from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

TIMEOUT_SECONDS = 60.0
TOP = (sys.executable, "-m", "orchestrator", "top")
PROGRAM = """\
import time
for step in range(3):
    print(f"step={step} loss={3.0 - step}", flush=True)
raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""
NEEDS_TMUX = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


@contextlib.contextmanager
def terminal(
    cli: command_line.CommandLine, folder: Path, size: tuple[int, int] = (80, 24)
) -> Iterator[terminals.Terminal]:
    def run(argv: Sequence[str]) -> str:
        done = cli.run(argv)
        assert done.code == 0, done.err
        return done.out

    with terminals.opened(run, cli.start_program, str(folder / "tmux"), size) as opened:
        yield opened


def processes(cli: command_line.CommandLine) -> list[int]:
    """Return the processes that run `top` for this test."""
    done = cli.run(["ps", "-e", "-o", "pid=,args="])
    lines = [line.split(maxsplit=1) for line in done.out.splitlines()]
    home = f"HOME={cli.home}".encode()
    return [
        int(pid)
        for pid, args in lines
        if "orchestrator top" in args and home in _environment(int(pid))
    ]


def _environment(pid: int) -> Sequence[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ()


def submit(cli: command_line.CommandLine, name: str, *words: str) -> None:
    assert cli("submit", "--name", name, "--time-limit", "10", *words).code == 0


@NEEDS_TMUX
@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_a_failed_job_is_found_and_a_running_one_cancelled(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path, size: tuple[int, int]
) -> None:
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(PROGRAM)
    submit(cli, "broken", "--launcher", "python", "--", "train.py")
    cli("wait", "1")
    fake_slurm.run_jobs(False)
    submit(cli, "other", "--command", "true")
    with terminal(cli, tmp_path, size) as opened:
        opened.run(TOP)
        screen = opened.shows("2 other PENDING")
        assert "1 FAILED  1 PENDING  [last day]  by submitted\n" in screen
        # Shared with `status`: Slurm is asked while it is open.
        fake_slurm.set_state(2, "RUNNING")
        opened.shows("2 other RUNNING")
        opened.type("Down", "e")
        opened.shows("oom_device: GPU")
        opened.type("l")
        opened.shows("step=2 loss=1.0")
        opened.type("m")
        opened.shows("█▅▁")
        opened.type("Up", "c")
        screen = opened.shows("Cancel 1 job?")
        assert "2  other  RUNNING" in screen
        assert fake_slurm.job(2)["state"] == "RUNNING"
        opened.type("y")
        opened.shows("2 is CANCELLED\n")
        assert fake_slurm.job(2)["state"] == "CANCELLED"
        events = cli.rows("SELECT kind, detail FROM job_events WHERE job_row = 2 ORDER BY id")
        assert ("cancel", "cancellation requested") in events
        opened.type("q")
        assert "[last day]" not in opened.shows("exit code 0\n")
        assert processes(cli) == []


@NEEDS_TMUX
def test_slurm_is_asked_as_often_as_by_status(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    submit(cli, "demo", "--command", "true")
    cli.environ["ORCHESTRATOR_POLL_FLOOR_SECONDS"] = "3600"
    assert cli("status", "--refresh").code == 0
    before = fake_slurm.calls()
    with terminal(cli, tmp_path) as opened:
        opened.run(TOP)
        opened.shows("1 demo PENDING  [log]")
        opened.type("e")
        opened.shows("[explain]")
        # What another process stores appears.
        assert cli("submit", "--name", "other", "--command", "true").code == 0
        opened.shows("other")
        opened.type("q")
        opened.shows("exit code 0\n")
    commands = [call[0] for call in fake_slurm.calls()[len(before) :]]
    assert "squeue" not in commands and "sacct" not in commands


@NEEDS_TMUX
def test_it_can_be_suspended(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    submit(cli, "demo", "--command", "true")
    with terminal(cli, tmp_path) as opened:
        opened.run(TOP)
        opened.shows("1 demo PENDING  [log]")
        opened.type("C-z")
        opened.shows("exit code")
        opened.type("-l", "clear; fg\n")
        screen = opened.shows("q quit  / filter")
        assert "1 demo PENDING  [log]" in screen and "1 PENDING  [last day]" in screen
        opened.type("C-c")
        opened.wait_until_gone("q quit  / filter")


@NEEDS_TMUX
def test_another_size_of_the_terminal(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    submit(cli, "demo", "--command", "true")
    log, no_metrics = "no log yet: ", "No metrics."
    with terminal(cli, tmp_path) as opened:
        opened.run(TOP)
        opened.shows("1 demo PENDING  [log] metrics explain")
        assert no_metrics not in opened.shows(log)
        opened.resize((200, 50))
        screen = opened.shows(no_metrics)
        assert log in screen and "1 demo PENDING  [log] [metrics] [explain]" in screen
        opened.resize((40, 10))
        opened.shows("[log] metrics explain")
        assert no_metrics not in opened.shows(log)


@NEEDS_TMUX
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_terminal_leaves_nothing(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path, number: signal.Signals
) -> None:
    submit(cli, "demo", "--command", "true")
    with terminal(cli, tmp_path) as opened:
        opened.run(TOP)
        opened.shows("1 demo PENDING")
        (pid,) = processes(cli)
        if number is signal.SIGHUP:
            opened.tmux("kill-server")
        else:
            os.kill(pid, number)
        cli.wait_until(lambda: not _is_alive(pid), "its end")
    # The database is free, and asking Slurm is nobody's turn.
    assert cli("status", "--refresh").err == ""


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_terminal_that_closes_without_a_signal_ends_it(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "demo", "--command", "true")
    # It is not its controlling terminal.
    process, terminal = _on_terminal(cli, TERM="xterm")
    try:
        _read_until(terminal, b"demo")
    finally:
        os.close(terminal)
    try:
        assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGHUP
    finally:
        process.kill()


@pytest.mark.parametrize("is_coloured", [True, False])
def test_no_color(cli: command_line.CommandLine, fake_slurm: FakeSlurm, is_coloured: bool) -> None:
    submit(cli, "demo", "--command", "true")
    environ = {} if is_coloured else {"NO_COLOR": "1"}
    process, terminal = _on_terminal(cli, TERM="xterm-256color", **environ)
    output = _read_until(terminal, b"? help")
    os.write(terminal, b"q")
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 65536):
            output += data
    assert process.wait(TIMEOUT_SECONDS) == 0
    os.close(terminal)
    parameters = b";".join(re.findall(rb"\x1b\[([\d;]*)m", output)).split(b";")
    colours = {int(word) for word in parameters if word} & {
        *range(30, 39),
        *range(40, 49),
        *range(90, 108),
    }
    assert bool(colours) == is_coloured
    # The selected line is inverted.
    assert b"7" in parameters
    # The screen is as it was before.
    assert output.rindex(b"\x1b[?1049l") > output.rindex(b"\x1b[?1049h")


def _on_terminal(
    cli: command_line.CommandLine, **environ: str
) -> tuple[subprocess.Popen[bytes], int]:
    """Start `top` on a terminal of its own; return it and the other end of the terminal."""
    here, there = pty.openpty()
    process = subprocess.Popen(
        TOP,
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=cli.folder,
        env={**cli.environ, "COLUMNS": "200", "LINES": "24", **environ},
        start_new_session=True,
    )
    os.close(there)
    return process, here


def _read_until(terminal: int, text: bytes) -> bytes:
    output = b""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while text not in output:
        assert time.monotonic() < deadline, output
        if select.select([terminal], [], [], 1)[0]:
            output += os.read(terminal, 65536)
    return output


def test_it_quits_while_it_starts(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    submit(cli, "demo", "--command", "true")
    for _ in range(5):
        process, terminal = _on_terminal(cli, TERM="xterm")
        _read_until(terminal, b"demo")
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        assert process.wait(TIMEOUT_SECONDS) == 0
        os.close(terminal)


def test_terminals_that_cannot_show_it(cli: command_line.CommandLine) -> None:
    piped = cli("top")
    assert (piped.code, piped.out) == (2, "")
    assert piped.err.endswith(
        "\nError: top needs a terminal; `orchestrator status --watch` prints the list.\n"
    )
    process, terminal = _on_terminal(cli, TERM="dumb")
    output = _read_until(terminal, b"list.\r\n").replace(b"\r\n", b"\n")
    assert process.wait(TIMEOUT_SECONDS) == 2
    os.close(terminal)
    assert output.endswith(
        b"\nError: this terminal cannot move the cursor (TERM is dumb or not set); "
        b"`orchestrator status --watch` prints the list.\n"
    )


def test_without_the_extra(cli: command_line.CommandLine, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['textual'] = None\n")
    cli.environ["PYTHONPATH"] = f"{tmp_path}:{cli.environ['PYTHONPATH']}"
    process, terminal = _on_terminal(cli, TERM="xterm")
    output = _read_until(terminal, b"[tui]'\r\n").replace(b"\r\n", b"\n")
    assert process.wait(TIMEOUT_SECONDS) == 1
    os.close(terminal)
    assert output == (
        b"Error: `top` needs textual, which is not installed. Install it: "
        b"pip install 'orchestrator[tui]'\n"
    )
