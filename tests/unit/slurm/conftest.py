"""Recorded output of Slurm by release (22.05.8, 24.11.5, 26.05.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.processes import process

RECORDED = Path(__file__).parent / "recorded"
RELEASES = ("22.05", "24.11", "26.05")


class Recorded:
    """Recorded output of one release."""

    def __init__(self, release: str) -> None:
        self.name = release

        self.release = (int(release[:2]), int(release[3:]))
        self._folder = RECORDED / release

    def text(self, name: str) -> str:
        return (self._folder / name).read_text(encoding="utf-8")

    def lines(self, name: str) -> list[str]:
        return self.text(name).split("\n")

    def answers(self, name: str) -> dict[str, process.Result]:
        """Read blocks: `### NAME: COMMAND LINE`, `rc=N`, lines of stdout (O) and stderr (E)."""
        result = {}
        for block in self.text(name).split("### ")[1:]:
            head, status, *lines = block.rstrip("\n").split("\n")
            title, _, command = head.partition(": ")
            result[title] = answer(
                command.split(" "),
                int(status.removeprefix("rc=")),
                stdout="".join(f"{line[2:]}\n" for line in lines if line.startswith("O ")),
                stderr="".join(f"{line[2:]}\n" for line in lines if line.startswith("E ")),
            )
        return result


def answer(argv, returncode=0, stdout="", stderr="", timed_out=False, seconds=0.1):
    return process.Result(
        argv=tuple(argv),
        returncode=returncode,
        stdout=stdout,
        stderr=stderr,
        timed_out=timed_out,
        seconds=seconds,
    )


@pytest.fixture(scope="session", params=RELEASES)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


@pytest.fixture(scope="session")
def make_answer():
    return answer
