"""A new user's first minute, with the commands of the README and without Slurm."""

from __future__ import annotations

import re
import shlex
import time

from tests import sessions
from tests.flow import command_line, test_local

here = test_local.here
#: Prints what a small program prints; the cluster test has one with PyTorch.
PROGRAM = """\
for epoch in range(2):
    for step in range(0, 20, 10):
        print(f"epoch {epoch} step {step} loss {2.31 - epoch - step / 100:.2f} 135.5 samples/sec")
"""
SCREEN = """\
JOB_ID   NAME        VALUE  UNIT         EPOCH  STEP  TIME  SOURCE
local-1  loss        2.31                0      0           log:keyvalue
local-1  throughput  135.5  samples/sec  0      0           log:keyvalue
local-1  loss        2.21                0      10          log:keyvalue
local-1  throughput  135.5  samples/sec  0      10          log:keyvalue
local-1  loss        1.31                1      0           log:keyvalue
local-1  throughput  135.5  samples/sec  1      0           log:keyvalue
local-1  loss        1.21                1      10          log:keyvalue
local-1  throughput  135.5  samples/sec  1      10          log:keyvalue

loss  ██▁▁  1.21 to 2.31
"""


def readme_commands() -> list[list[str]]:
    """Return the words of the first commands below the README's heading."""
    section = sessions.README.read_text().split("## Run your own train.py\n")[1]
    first = re.search(r"(?:^ {4}.*\n)+", section, re.MULTILINE)
    assert first is not None
    return [shlex.split(line, comments=True) for line in first[0].splitlines()]


def on_terminal(here: command_line.CommandLine, *argv: str) -> tuple[int, str, str]:
    """Return the exit code and what is on the screen, without colours and trailing blanks."""
    code, out, err = here.on_terminal(*argv, COLUMNS="80")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.decode()).replace("\r\n", "\n")
    return code, re.sub(r" +$", "", plain, flags=re.MULTILINE), err.decode()


def test_the_commands_of_the_readme_show_the_metrics(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text(PROGRAM)
    (first, *submit), (second, *metrics) = readme_commands()
    assert (first, second) == ("orchestrator", "orchestrator")
    # As after `source .venv/bin/activate`.
    shell = {"VIRTUAL_ENV": str(here.home / "env"), "VIRTUAL_ENV_PROMPT": "(env) "}
    started = time.monotonic()
    code, out, err = here.on_terminal(*submit, **shell)
    assert (code, out) == (0, b"Submitted batch job local-1 (@1, train)\r\n"), err
    note, *states = err.decode().splitlines()
    assert re.fullmatch(r"No sbatch on PATH: the job runs on this machine, \S+", note)
    state = r"\d\d:\d\d:\d\d local-1 (?:PENDING|RUNNING on \S+|COMPLETED on \S+)"
    assert all(re.fullmatch(state, line) for line in states), err
    code, screen, err = on_terminal(here, *metrics)
    assert screen == SCREEN
    assert (code, err) == (0, "")
    assert time.monotonic() - started < 60


def test_a_step_is_shown_by_its_name_and_in_a_pipe(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text(PROGRAM)
    assert here("submit", "train.py", "--wait").code == 0
    _, screen, _ = on_terminal(here, "metrics", "train", "--name", "step")
    assert screen.count("local-1  step ") == 4
    names = [line.split("\t")[1] for line in here("metrics", "train").out.splitlines()]
    assert names.count("step") == names.count("epoch") == 4


def test_a_program_that_prints_only_epochs_shows_them(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text("for epoch in range(2): print(f'epoch={epoch}')")
    assert here("submit", "train.py", "--wait").code == 0
    assert on_terminal(here, "metrics", "train")[1].startswith(
        "JOB_ID   NAME   VALUE  UNIT   EPOCH  STEP  TIME  SOURCE\nlocal-1  epoch  0      epoch  0"
    )


def test_a_program_that_fails_shows_what_it_printed(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text('print("loading"); raise SystemExit("config broken")')
    done = here("submit", "train.py", "--wait")
    (folder,) = here.run_folders()
    log = folder / "local-1.out"
    assert done.code == 1
    assert done.err.partition("Job: ")[2] == (
        "      local-1 (@1) train, FAILED\n"
        "Cause:     nonzero_exit: the job ended with exit code 1\n"
        "Evidence:  FAILED, exit code 1:0\n"
        f"           {log}:2: loading\n"
        f"           {log}:3: config broken\n"
        "Fix:       - see the end of the log: orchestrator logs local-1\n"
        "Error: job local-1 ended FAILED, exit code 1:0\n"
    )


def test_a_misspelt_job_is_answered_with_the_nearest(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text(PROGRAM)
    assert here("submit", "train.py", "--wait").code == 0
    done = here("metrics", "trian")
    assert (done.code, done.err) == (
        here("metrics", "zzz").code,
        "Error: job 'trian' not found: `orchestrator status --all` lists all jobs. "
        "Did you mean 'train'?\n",
    )
    assert "Did you mean" not in here("metrics", "zzz").err


def test_a_program_without_metrics(here: command_line.CommandLine) -> None:
    (here.folder / "train.py").write_text("print('hello')")
    assert here("submit", "train.py", "--wait").code == 0
    done = here("metrics", "train")
    assert (done.code, done.err) == (
        0,
        "No metrics: no line of the log matches a pattern. Lines such as `step 10 loss 2.31` do; "
        "for others see docs/howto/metrics.md. `orchestrator logs` prints the log\n",
    )
