"""The sessions in README.md and docs: commands, their output, and what differs between runs.

`python -m tests.sessions PAGE SECTION...` runs the sessions of a page on this machine, without
Slurm, and writes their output into the page.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.slurm import variables
from tests.flow import command_line

CHECKOUT = Path(__file__).resolve().parents[1]
README = CHECKOUT / "README.md"
TUTORIAL = CHECKOUT / "docs/tutorial.md"
FROM_SBATCH = CHECKOUT / "docs/howto/from-sbatch.md"
COLUMNS = 120
#: A separate line in the shown output: the lines after it are omitted.
ELLIPSIS = "..."
#: The host in the shown output.
HOST = "workstation"

#: What differs between runs -> the word that replaces it. Everything else is compared.
VARYING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", "WHEN"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    # Seconds, images/second, losses, accuracies; a range of values may begin or end at an integer.
    (r"\b\d+(\.\d+)? to \d+(\.\d+)?\b", "RANGE"),
    (r"\b\d+(\.\d+)? \(RANGE\)", "NUMBERS"),
    # Before what follows: a cluster may have come to thousands.
    (r"^(Job: +|Submitted batch job |Tracking |TIME |)(local-)?\d+(?= |$)", r"\1\2ID"),
    # Five significant digits, so a large one has no decimal point.
    (r"\b\d+\.\d+\b|\b\d{4,}\b", "NUMBER"),
    (r"[▁▂▃▄▅▆▇█]+", "SPARKS"),
    (r" on \S+$", " on HOSTS"),
    # The columns of a table are as wide as their longest cell.
    (r" {2,}", " "),
)
#: A job that starts at once is not seen as pending.
PENDING = re.compile(r"TIME \S+ PENDING\b.*")
#: What the commands need besides the caller's environment: no colours.
ENVIRON = {"TERM": "xterm", "NO_COLOR": "1", "SHELL": "/bin/bash"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A command and its output."""

    #: as typed into a shell
    command: str
    #: lines on the terminal
    shown: Sequence[str]


def sections(page: Path) -> dict[str, list[Step]]:
    """Return the steps of each section that has some."""
    steps_of: dict[str, list[Step]] = {}
    for part in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if steps := list(_steps(text)):
            steps_of[heading] = steps
    return steps_of


def _steps(text: str) -> Iterator[Step]:
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text, flags=re.MULTILINE):
        lines = [line.removeprefix("    ").rstrip() for line in block.splitlines()]
        for step in re.split(r"^\$ ", "\n".join(lines).strip("\n"), flags=re.MULTILINE)[1:]:
            command, *shown = step.rstrip("\n").split("\n")
            yield Step(command=command, shown=shown)


def argv(command: str) -> list[str]:
    """Return what runs a command on a terminal; its stdout has both streams, with CR LF."""
    return [
        "script",
        "--quiet",
        "--return",
        "--command",
        f"stty cols {COLUMNS}; {command}",
        "/dev/null",
    ]


def comparable(lines: Sequence[str]) -> list[str]:
    """Return lines with the varying parts replaced by words."""
    text = command_line.PROGRESS.sub("", "".join(f"{line.rstrip()}\n" for line in lines))
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines() if not PENDING.fullmatch(line)]


def check(step: Step, printed: str) -> None:
    """Assert that a command printed what is shown."""
    lines, shown = _both(step, printed)
    assert lines == shown, step.command


def is_as_shown(step: Step, printed: str) -> bool:
    """Return whether a command printed what is shown."""
    lines, shown = _both(step, printed)
    return lines == shown


def _both(step: Step, printed: str) -> tuple[list[str], list[str]]:
    lines, shown = _lines(printed), list(step.shown)
    if shown[-1:] == [ELLIPSIS]:
        shown.pop()
        lines = lines[: len(shown)]
    return comparable(lines), comparable(shown)


def _lines(printed: str) -> list[str]:
    short = re.escape(socket.gethostname().partition(".")[0])
    printed = re.sub(rf"\b{short}\b", HOST, printed)
    return printed.replace("\r", "").rstrip("\n").split("\n") if printed.strip() else []


def job_id(text: str) -> str | None:
    """Return the job ID that a command printed."""
    match = re.search(r"^Submitted batch job (\S+)", text, flags=re.MULTILINE)
    return match and match[1]


def run_locally(
    steps: Sequence[Step], environ: Mapping[str, str], home: Path
) -> Iterator[tuple[Step, str]]:
    """Run steps in a folder with a copy of examples/, without Slurm and GPUs; yield outputs."""
    tools, folder = home / "bin", home / "checkout"
    if not tools.exists():
        tools.mkdir()
        command = tools / "orchestrator"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchestrator "$@"\n')
        command.chmod(0o755)
        shutil.copytree(CHECKOUT / "examples", folder / "examples")
        (folder / "tests").symlink_to(CHECKOUT / "tests")
    # torchrun is the one of this Python.
    path = f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A variable that is not passed on to local jobs would be named on stderr.
    stored = variables.stored(environ)
    kept = {name: value for name, value in stored.items() if not name.startswith("XDG_")}
    passed = {
        **kept,
        **ENVIRON,
        "HOME": str(home),
        "PATH": path,
        "PYTHONPATH": str(CHECKOUT),
        "CUDA_VISIBLE_DEVICES": "",
    }
    for step in steps:
        if step.command.startswith("cd "):
            folder = folder / step.command.removeprefix("cd ")
            continue
        done = subprocess.run(
            argv(step.command),
            cwd=folder,
            env=passed,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        yield step, done.stdout


def main() -> None:
    """Write the output of sessions into a page."""
    page, *headings = Path(sys.argv[1]), *sys.argv[2:]
    text = page.read_text(encoding="utf-8")
    steps = [step for heading in headings for step in sections(page)[heading]]
    with tempfile.TemporaryDirectory() as home:
        for step, printed in run_locally(steps, os.environ, Path(home)):
            lines = _lines(command_line.PROGRESS.sub("", printed))
            if step.shown[-1:] == [ELLIPSIS]:
                lines = [*lines[: len(step.shown) - 1], ELLIPSIS]
            before, after = (
                "".join(f"    {line}".rstrip() + "\n" for line in [f"$ {step.command}", *output])
                for output in (step.shown, lines)
            )
            assert before in text, step.command
            text = text.replace(before, after, 1)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
