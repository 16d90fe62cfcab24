"""A repository whose program says which version of it runs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

#: Writes its version and its working directory to the log.
TRAIN = """\
import os, sys
print("version", {version!r}, os.path.relpath(os.getcwd(), os.environ["ORCHESTRATOR_RUN_DIR"]))
print("submitted in", os.environ["SLURM_SUBMIT_DIR"] == os.getcwd())
sys.exit({code})
"""
SPEC = """\
[job]
name = "demo"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
"""
SNAPSHOT = "[code]\nsnapshot = true\n"
NOTE = re.compile(r"Code: snapshot [0-9a-f]{12} of (\S+) \((\d+ files?), [0-9.]+ MB\)\n")


class Project:
    """A repository with a program, and the command that submits it."""

    def __init__(self, cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
        self.cli, self.slurm = cli, fake_slurm
        self.folder = cli.folder
        self.git("init", "-q")
        self.edit("one")
        (self.folder / "job.toml").write_text(SPEC)
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")

    def git(self, *words):
        command = ["git", "-C", self.folder, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def edit(self, version, *, code=0):
        (self.folder / "train.py").write_text(TRAIN.format(version=version, code=code))

    def start(self, job_id):
        """Let a pending job run to its end."""
        self.slurm.run_jobs()
        self.cli.run(["scontrol", "release", str(job_id)])
        self.slurm.wait_for(job_id, "COMPLETED", "FAILED")
        self.slurm.run_jobs(False)

    def log(self, job_id):
        """Return the lines of a job's program."""
        text = Path(self.slurm.job(job_id)["stdout"].replace("%j", str(job_id))).read_text()
        return [line for line in text.splitlines() if not line.startswith("===")]

    def versions(self, *job_ids):
        return [line.split()[1] for each in job_ids for line in self.log(each) if "version" in line]

    def run_folders(self) -> list[Path]:
        """Return the run folders of all submissions, the oldest first."""
        rows = self.cli.rows("SELECT run_dir FROM submissions ORDER BY rowid")
        return [Path(path) for (path,) in rows]

    def trees(self) -> list[str | None]:
        """Return the trees in the specs of all submissions."""
        rows = self.cli.rows("SELECT spec FROM submissions ORDER BY rowid")
        return [json.loads(spec)["code"]["tree"] for (spec,) in rows]
