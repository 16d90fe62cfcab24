"""A simulated Slurm allocation on this machine: fakes of srun, scontrol, torchrun, apptainer."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator import jobs
from orchestrator.config import profiles
from orchestrator.rendering import job_script, templates

TOKEN = "ab12cdefgh34"
#: In the environment of all processes of this run of pytest.
MARK = secrets.token_hex(8)

#: Each command logs its arguments as a JSON list to NAME.log in $FAKE. -IS starts twice as fast.
_LOG = (
    f"#!{sys.base_prefix}/bin/python3 -IS\n"
    + """\
import json, os, subprocess, sys
name = os.path.basename(sys.argv[0])
with open(os.environ["FAKE"] + f"/{name}.log", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
"""
)
COMMANDS = {
    # Starts each task with the variables of srun.
    "srun": _LOG
    + """
options = {}
words = sys.argv[1:]
while words[0].startswith("--"):
    key, _, value = words.pop(0)[2:].partition("=")
    options[key] = value
nodes = int(options.get("nodes", os.environ["SLURM_JOB_NUM_NODES"]))
tasks = int(options.get("ntasks-per-node", 1))
if "ntasks-per-node" not in options:
    tasks = int(options.get("ntasks", 1)) // nodes
started = []
for rank in range(nodes * tasks):
    step = {"SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank % tasks,
            "SLURM_NODEID": rank // tasks, "SLURM_STEP_NUM_TASKS": nodes * tasks,
            "SLURM_STEP_NUM_NODES": nodes, "SLURMD_NODENAME": "localhost",
            "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x{nodes})"}
    environ = {**os.environ, **{k: str(v) for k, v in step.items()}}
    started.append(subprocess.Popen(words, env=environ))
ends = [task.wait() for task in started]
sys.exit(max(128 - end if end < 0 else end for end in ends))
""",
    "scontrol": _LOG
    + """
if sys.argv[1:3] == ["show", "hostnames"]:
    print(os.environ.get("FAKE_HEAD", "localhost\\nlocalhost"))
else:
    sys.exit(int(os.environ.get("FAKE_REQUEUE", "0")))
""",
    "torchrun": _LOG
    + """
with open(os.environ["FAKE"] + "/environ.json", "w") as file:
    json.dump(dict(os.environ), file)
""",
    # Runs the command after the image on this machine.
    "apptainer": _LOG
    + """
os.execvp("bash", sys.argv[sys.argv.index("bash"):])
""",
    "singularity": _LOG,
    # ch-run is called before, too: whether the image has variables of its own.
    "ch-run": _LOG
    + """
if sys.argv[1] == "--help":
    print("  -W, --write-fake[=SIZE]")
elif "bash" in sys.argv:
    os.environ["FROM_IMAGE"] = os.environ["NCCL_DEBUG"] = "image"
    os.execvp("bash", sys.argv[sys.argv.index("bash"):])
""",
    "podman-hpc": _LOG
    + """
os.execvp("bash", sys.argv[sys.argv.index("bash"):])
""",
}

#: Its stdin ends when pytest ends. Scripts start process groups of their own.
_WATCHER = """\
import sys
from orchestrator.local import processes
sys.stdin.read()
processes.kill_all(lambda: processes.marked("FAKE_MARK", sys.argv[1]))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A folder with the commands, the run folders and a working directory."""

    #: contains bin, fake (logs of the commands), runs and work
    folder: Path

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    @property
    def run_dir(self) -> Path:
        return self.runs_dir / f"job.{TOKEN}"

    def environ(self, **changes: str) -> dict[str, str]:
        """Return the environment of a batch script with one node."""
        return {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "FAKE": str(self.folder / "fake"),
            "FAKE_MARK": MARK,
            "SLURM_JOB_ID": "41",
            "SLURM_JOB_NAME": f"job.{TOKEN}",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURMD_NODENAME": "n1",
            **changes,
        }

    def render(self, **changes: object) -> str:
        """Return the script of a job with the name `job`."""
        spec = jobs.JobSpec(**{"name": "job", **changes})  # type: ignore[arg-type]
        return job_script.render(
            spec,
            profiles.Profile(),
            runs_dir=self.runs_dir,
            origin=templates.Origin(version="0.1.0", spec="job.toml"),
        ).text

    def start(self, script: str, **changes: str) -> subprocess.Popen[str]:
        """Start a script like slurmd: in its own process group, without input."""
        file = self.folder / f"slurm_script.{changes.get('SLURM_JOB_ID', '41')}"
        file.write_text(script)
        return subprocess.Popen(
            ["bash", file],
            env=self.environ(**changes),
            cwd=self.folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, script: str, *, timeout_seconds: float = 60, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        process = self.start(script, **changes)
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def calls(self, command: str) -> list[list[str]]:
        """Return the arguments of each call of a command."""
        file = self.folder / "fake" / f"{command}.log"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def record(self, attempt: int = 0) -> dict[str, object] | None:
        file = self.run_dir / f"exit.0.{attempt}.json"
        return json.loads(file.read_text()) if file.exists() else None


def make(folder: Path) -> Machine:
    """Create the folder's content."""
    for name in ("bin", "fake", "work"):
        (folder / name).mkdir()
    for name, text in COMMANDS.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    run_dir = folder / "runs" / f"job.{TOKEN}"
    run_dir.mkdir(parents=True)
    # submit creates it, and the script identifies its folder by it.
    (run_dir / "script.sbatch").touch()
    return Machine(folder=folder)


@contextlib.contextmanager
def killed_with_pytest() -> Iterator[None]:
    """Kill what the scripts left running, at the end or as soon as pytest is killed."""
    argv = [sys.executable, "-c", _WATCHER, MARK]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        yield


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true; fail after 30 s."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)
