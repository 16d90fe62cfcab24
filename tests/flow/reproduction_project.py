"""A repository with a program, a spec and a virtual environment, for jobs that are compared."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tests.flow import code_project, command_line, test_environments
from tests.flow.conftest import FakeSlurm

TRAIN = """\
import json, os, pathlib, sys
result = {"version": 1, "arguments": sys.argv[1:]}
pathlib.Path(os.environ["ORCHESTRATOR_RUN_DIR"], "result.json").write_text(json.dumps(result))
"""
SPEC = """\
[job]
name = "demo"
time_limit = "10"
[environment]
venv = "VENV"
[launch]
launcher = "python"
script = "train.py"
[args]
lr = 0.1
epochs = 3
"""


class Reproduction(code_project.Project):
    """A repository with a program and a spec, and a virtual environment outside of it."""

    def __init__(self, cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
        super().__init__(cli, fake_slurm)
        self.venv, _ = test_environments.make_venv(cli.home)
        (self.folder / "train.py").write_text(TRAIN)
        (self.folder / "job.toml").write_text(SPEC.replace("VENV", str(self.venv)))
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "second")

    def install(self, old: str, new: str) -> None:
        """Replace a package by another version."""
        (folder,) = self.venv.glob(f"lib/python3.*/site-packages/{old}.dist-info")
        folder.rename(folder.with_name(f"{new}.dist-info"))

    def run(self, job_id: int, *options: str) -> None:
        done = self.cli("submit", *options)
        assert done.code == 0, done
        self.start(job_id)

    def edit_line(self) -> None:
        (self.folder / "train.py").write_text(TRAIN.replace('"version": 1', '"version": 2'))

    def result(self, row: int) -> bytes:
        """Return what the program of a submission wrote."""
        return (self.run_folders()[row - 1] / "result.json").read_bytes()

    def arguments(self, row: int) -> list[str]:
        return json.loads(self.result(row))["arguments"]

    def rerun(self, done: command_line.Done, job_id: int) -> None:
        """Run the commands that `checkout` prints."""
        folder, command = (line.removeprefix("  ") for line in done.out.splitlines()[1:])
        again = self.cli(*shlex.split(command)[1:], cwd=Path(shlex.split(folder)[1]))
        assert again.code == 0, again
        self.start(job_id)


HEAD = re.compile(r"([AB]): (\d+) \(@\d+, demo\)  COMPLETED after 00:00:\d\d on \S+")


def shown(done: command_line.Done) -> list[str]:
    """Return the lines of `diff` after those that name the jobs."""
    first, second, *rest = done.out.splitlines()
    names = [match[1] for line in (first, second) if (match := HEAD.fullmatch(line))]
    assert names == ["A", "B"]
    return rest
