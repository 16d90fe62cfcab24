"""The idle controller with many pending and running jobs: CPU time, memory and calls of Slurm."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.flow.fake_slurm import fake

#: Tasks per array: MaxArraySize of the fake is 1001.
TASKS = 1000
CPU_PERCENT, RSS_MIB, CALLS = 1.0, 150.0, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--jobs", type=int, default=10_000, help="half of them are running")
    parser.add_argument("--interval", type=float, default=60, help="seconds between passes")
    parser.add_argument("--passes", type=int, default=4, help="number of measured passes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """Resources that a process has used so far."""

    at: float
    cpu_seconds: float
    #: now, and the peak so far
    mib: float
    peak_mib: float


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if one exceeds its budget."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        environ = _surroundings(root)
        _make_jobs(root, environ, arguments.jobs)
        serve = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "serve", "--interval", str(arguments.interval)],
            env=environ,
            cwd=root,
        )
        try:
            used = list(_watch(serve.pid, root, arguments.passes))
        finally:
            serve.send_signal(signal.SIGTERM)
            serve.wait()
        calls = _calls(root)
    # The first pass imports modules and reads all jobs.
    began, ended = used[1], used[-1]
    passes = len(used) - 2
    cpu_seconds = ended.cpu_seconds - began.cpu_seconds
    percent = 100 * cpu_seconds / (ended.at - began.at)
    asked = (calls[-1] - calls[1]) / passes
    print(
        f"{arguments.jobs} jobs, {passes} passes, one every {arguments.interval:g} s:\n"
        f"  of one core   {percent:.2f} %  (budget {CPU_PERCENT:g} %), "
        f"{cpu_seconds / passes:.2f} s a pass\n"
        f"  memory        {ended.mib:.0f} MiB (budget {RSS_MIB:g} MiB); "
        f"{ended.peak_mib:.0f} MiB at the most, when half of the jobs had just begun\n"
        f"  Slurm's calls {asked:.1f} a pass (budget {CALLS})"
    )
    kept = percent < CPU_PERCENT and ended.mib < RSS_MIB and asked <= CALLS
    return 0 if kept else 1


def _surroundings(folder: pathlib.Path) -> dict[str, str]:
    (folder / "fake").mkdir()
    with fake.state(folder / "fake"):
        pass
    commands = pathlib.Path(fake.__file__).parent
    return {
        "HOME": str(folder),
        "USER": os.environ.get("USER", "alice"),
        "LANG": "C.UTF-8",
        "XDG_CONFIG_DIRS": str(folder / "no-site"),
        "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
        "EBROOTFAKESLURM": str(folder / "fake"),
    }


def _make_jobs(folder: pathlib.Path, environ: dict[str, str], count: int) -> None:
    spec = folder / "array.toml"
    for first in range(0, count, TASKS):
        size = min(TASKS, count - first)
        spec.write_text(
            '[job]\nname = "many"\ntime_limit = "1:00:00"\n'
            f'[launch]\ncommand = "sleep 60"\n[array]\nsize = {size}\n'
        )
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "submit", str(spec)],
            env=environ,
            cwd=folder,
            check=True,
            capture_output=True,
        )
    with fake.state(folder / "fake") as data:
        for number, job in enumerate(data["jobs"].values()):
            if number % 2:
                fake.change(data, job, "RUNNING")
                path = job["stdout"].replace("%A", str(job["array_job_id"]))
                path = path.replace("%a", str(job["array_task_id"]))
                pathlib.Path(path).write_text("epoch 1: loss 0.5, 1000 samples/s\n")


def _watch(pid: int, folder: pathlib.Path, passes: int) -> Iterator[Usage]:
    """Yield the used resources at the end of each pass, for `passes` + 2 passes."""
    path = folder / ".local/state/orchestrator/controller.json"
    seen = None
    for _ in range(passes + 2):
        while (
            not path.exists() or (last_pass := json.loads(path.read_text())["last_pass_at"]) == seen
        ):
            time.sleep(0.2)
        seen = last_pass
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        held, peak = (
            int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)[1]) / 1024
            for name in ("VmRSS", "VmHWM")
        )
        (folder / "calls").open("a").write(f"{_count(folder)}\n")
        yield Usage(
            at=time.monotonic(),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            mib=held,
            peak_mib=peak,
        )


def _count(folder: pathlib.Path) -> int:
    return len((folder / "fake" / "calls").read_text().splitlines())


def _calls(folder: pathlib.Path) -> list[int]:
    return [int(line) for line in (folder / "calls").read_text().split()]
