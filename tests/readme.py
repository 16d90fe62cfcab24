"""The sessions in README.md: what is typed, what is shown, and what differs from run to run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.flow import command_line

README = Path(__file__).resolve().parents[1] / "README.md"
#: As wide as the README's own output.
COLUMNS = 120
#: A shown line of its own: what follows is not shown.
AND_SO_ON = "..."

#: What differs from run to run -> the word that stands for it. All else must be as it is shown.
VARYING = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", "WHEN"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    # Seconds, images/second, losses, accuracies.
    (r"\b\d+\.\d+\b", "NUMBER"),
    (r"[▁▂▃▄▅▆▇█]+", "SPARKS"),
    (r"^(Job: +|Submitted batch job |Tracking |TIME |)(local-)?\d+(?= |$)", r"\1\2ID"),
    (r" on \S+$", " on HOSTS"),
    # A table's columns are as wide as their longest cell.
    (r" {2,}", " "),
)
#: Not every run is looked at while its job still waits.
WAITS = re.compile(r"TIME \S+ PENDING\b.*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A command and what it prints."""

    #: As it is typed into a shell.
    command: str
    #: Lines on the terminal.
    shown: Sequence[str]


def sections() -> dict[str, list[Step]]:
    """Return the steps below each heading that has some."""
    found: dict[str, list[Step]] = {}
    for part in re.split(r"^## ", README.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        if steps := list(_steps(text)):
            found[heading] = steps
    return found


def _steps(text: str) -> Iterator[Step]:
    for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text, flags=re.MULTILINE):
        lines = [line.removeprefix("    ").rstrip() for line in block.splitlines()]
        for step in re.split(r"^\$ ", "\n".join(lines).strip("\n"), flags=re.MULTILINE)[1:]:
            command, *shown = step.rstrip("\n").split("\n")
            yield Step(command=command, shown=shown)


def argv(command: str) -> list[str]:
    """Return what runs a command in a shell on a terminal; its stdout has both streams, CR LF."""
    return [
        "script",
        "--quiet",
        "--return",
        "--command",
        f"stty cols {COLUMNS}; {command}",
        "/dev/null",
    ]


#: What else the command needs: no colours.
ENVIRON = {"TERM": "xterm", "NO_COLOR": "1", "SHELL": "/bin/bash"}


def comparable(lines: Sequence[str]) -> list[str]:
    """Return lines with what varies as words."""
    text = command_line.PROGRESS.sub("", "".join(f"{line.rstrip()}\n" for line in lines))
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines() if not WAITS.fullmatch(line)]


def check(step: Step, printed: str) -> None:
    """Assert that a command printed what is shown."""
    lines, shown = _both(step, printed)
    assert lines == shown, step.command


def is_as_shown(step: Step, printed: str) -> bool:
    """Return whether a command printed what is shown."""
    lines, shown = _both(step, printed)
    return lines == shown


def _both(step: Step, printed: str) -> tuple[list[str], list[str]]:
    lines = printed.replace("\r", "").rstrip("\n").split("\n") if printed.strip() else []
    shown = list(step.shown)
    if shown[-1:] == [AND_SO_ON]:
        shown.pop()
        lines = lines[: len(shown)]
    return comparable(lines), comparable(shown)


def job_id(text: str) -> str | None:
    """Return the job ID that a command printed."""
    found = re.search(r"^Submitted batch job (\S+)", text, flags=re.MULTILINE)
    return found and found[1]
