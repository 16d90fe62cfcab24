"""Ctrl-C at any time: no traceback, a quick exit, and a submission is either known or was not sent.

Python itself shows a traceback when SIGINT comes before it runs the first line of ours, or
`-m` has found our package. Only the parent process can prevent that; it is counted apart.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

from tests.flow import command_line

SPEC = '[job]\nname = "demo"\n[launch]\nlauncher = "python"\nscript = "train.py"\n'
#: Over the first so many seconds of a command the signals are spread, longer on a slow machine.
SPREAD_SECONDS = 0.2
#: A busy machine takes seconds for a command that takes 0.4 s alone.
LIMIT_SECONDS = 30.0
COMMANDS = (
    *(("status",), ("--help",), ("submit", "job.toml"), ("render", "job.toml"), ("show", "@1")),
    *(("metrics", "@1"), ("config", "show"), ("doctor",), ("schedule", "list"), ("tick",)),
)
#: Interrupted: by the signal, or with the message; else as the command ends by itself.
BY_SIGNAL = -signal.SIGINT
PYTHON_STARTS = re.compile(
    r"Fatal Python error: init_|Could not import runpy module\n|"
    r'Traceback \(most recent call last\):\n  File "<frozen runpy>", line \d+, in _run_module_as'
)
ENDS = {BY_SIGNAL, 130, 0, 1, 4}


def interrupted(cli, argv, delay_seconds, times=1):
    """Return exit code and stderr of a command that gets SIGINT after this time."""
    process = cli.start(*argv)
    time.sleep(delay_seconds)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, err


def sweep(cli, fake_slurm, count, times=1):
    """Interrupt so many commands; return how many were hit while Python itself started."""
    cli.spec(SPEC)
    assert cli("submit", "job.toml").code == 0
    begun = time.monotonic()
    command_line.finish(cli.start("status"))
    spread_seconds = min(max(SPREAD_SECONDS, time.monotonic() - begun), 1.0)
    starts = 0
    wrong = []
    for number in range(count):
        argv = COMMANDS[number % len(COMMANDS)]
        delay_seconds = spread_seconds * number / count
        code, err = interrupted(cli, argv, delay_seconds, times)
        if PYTHON_STARTS.match(err) and "/orchestrator/" not in err:
            starts += 1
        elif code not in ENDS or "Traceback" in err or "Exception ignored" in err:
            wrong.append(f"{argv} after {delay_seconds * 1000:.0f} ms: exit {code}: {err[-800:]}")
    assert not wrong, "\n".join(wrong)
    # What was interrupted is settled by the next refresh: each job that Slurm has is known once,
    # and none waits to be submitted for ever.
    assert cli("refresh").code == 0
    known = [str(job_id) for (job_id,) in cli.rows("SELECT job_id FROM jobs") if job_id]
    assert sorted(known) == sorted(str(job["job_id"]) for job in fake_slurm.jobs())
    assert cli.rows("SELECT row FROM jobs WHERE state = 'SUBMITTING'") == []
    return starts


def test_interrupts(cli, fake_slurm):
    assert sweep(cli, fake_slurm, 40) < 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_interrupts(cli, fake_slurm):
    assert sweep(cli, fake_slurm, 400) < 200


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_pressed_twice(cli, fake_slurm):
    assert sweep(cli, fake_slurm, 100, times=2) < 50


def test_a_second_interrupt_is_silent(cli):
    """The handler of the first is left alone: the signal then ends the process."""
    program = (
        "import os, signal, sys\n"
        "sys.argv = ['orchestrator', 'status']\n"
        "import click\n"
        "from orchestrator import cli\n"
        "def interrupt(ctx):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.cli.invoke = interrupt\n"
        "echo = click.echo\n"
        "def twice(*args, **options):\n"
        "    echo(*args, **options)\n"
        "    if args == ('Interrupted.',):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "click.echo = twice\n"
        "cli.main()\n"
    )
    done = cli.run([sys.executable, "-c", program])
    assert (done.code, done.out, done.err) == (BY_SIGNAL, "", "\nInterrupted.\n")


@pytest.mark.parametrize(
    ("statement", "code", "err"),
    [
        # A class body of Python 3.11 makes a RuntimeError of it.
        (
            "try: raise KeyboardInterrupt\n except BaseException as e: raise RuntimeError from e",
            130,
            "Interrupted.\n",
        ),
        # Python drops what a destructor raises.
        (
            "class X:\n  def __del__(self): raise KeyboardInterrupt\n X()\n print(1, flush=True)",
            BY_SIGNAL,
            "",
        ),
    ],
)
def test_an_interrupt_in_a_place_where_it_would_be_lost(cli, statement, code, err):
    program = (
        "import sys\nsys.argv = ['', 'status']\nfrom orchestrator import cli\n"
        f"def invoke(ctx):\n {statement}\ncli.cli.invoke = invoke\ncli.main()\n"
    )
    done = cli.run([sys.executable, "-c", program])
    assert (done.code, done.out, done.err) == (code, "", err)


def test_ignored_from_the_start_stays_ignored(cli):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = cli.start("status")
    finally:
        signal.signal(signal.SIGINT, before)
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.01)
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, err) == (0, ""), out


def interrupted_at(process, text):
    """Send SIGINT when the process has printed this; return exit code and all of stderr."""
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            process.send_signal(signal.SIGINT)
            break
    _, rest = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, seen + rest


def test_a_job_outlives_an_interrupted_wait(cli, fake_slurm):
    fake_slurm.run_jobs(False)
    waiting = cli.start("submit", "--wait", "--", "true")
    code, err = interrupted_at(waiting, " 1 PENDING")
    assert code == 130
    assert err.endswith(
        "The job goes on. Follow: orchestrator logs -f 1; wait: orchestrator wait 1; "
        "cancel: orchestrator cancel 1\n\nInterrupted.\n"
    )
    assert cli("status", "1", "--json").items[0]["state"] == "PENDING"


def test_an_interrupted_doctor_cancels_its_job(cli, fake_slurm):
    fake_slurm.run_jobs(False)
    code, err = interrupted_at(cli.start("doctor", "--job"), "Submitted job 1 ")
    assert code == 130
    assert err.endswith("Job 1 is CANCELLED\n\nInterrupted.\n")
    assert cli("status", "1", "--json").items[0]["state"] == "CANCELLED"
