"""The simulated Slurm of the flow tier: fake commands first on PATH, and their controls."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import zygote
from tests.flow import command_line
from tests.flow.fake_slurm import fake

COMMANDS = Path(fake.__file__).parent


class FakeSlurm:
    """What a test does to the fake cluster, and what it sees of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A shim of pyenv in its place takes three times as long as the command.
        self._bin = folder / "bin"
        self._bin.mkdir()
        (self._bin / "python3").symlink_to(os.path.realpath(sys.executable))
        with fake.state(folder):
            pass

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to meet the fake commands."""
        path = os.environ.get("PATH", os.defpath)
        path = os.pathsep.join([str(COMMANDS), str(self._bin), path])
        # Named as a software module's variable is: jobs that are sent later have it too.
        return {"PATH": path, "EBROOTFAKESLURM": str(self.folder)}

    def run_jobs(self, runs: bool = True) -> None:
        """From now on sbatch runs the scripts; without it jobs stay PENDING."""
        with fake.state(self.folder) as data:
            data["runs"] = runs

    def complete_jobs(self) -> None:
        """From now on a job is COMPLETED as soon as sbatch has it, without running its script."""
        with fake.state(self.folder) as data:
            data["completes"] = True

    def configure(self, **settings: str) -> None:
        """Change the output of `scontrol show config`; accounting off: AccountingStorageType=..."""
        with fake.state(self.folder) as data:
            data["config"].update(settings)

    def jobs(self) -> list[fake.Job]:
        """Return all jobs that sbatch took, in order."""
        with fake.state(self.folder) as data:
            return list(data["jobs"].values())

    def job(self, job_id: str | int) -> fake.Job:
        """Return one job; KeyError when there is none."""
        with fake.state(self.folder) as data:
            return self._find(data, job_id)

    def set_state(self, job_id: str | int, state: str, exit: str = "0:0", **fields: Any) -> None:
        """Bring a job into a state: `set_state(7, "FAILED", exit="3:0", reason="...")`."""
        code, _, number = exit.partition(":")
        with fake.state(self.folder) as data:
            job = self._find(data, job_id)
            fake.change(data, job, state, exit=[int(code), int(number)], **fields)

    def requeue(self, job_id: str | int, ended_as: str = "REQUEUED") -> None:
        """End the attempt (REQUEUED, PREEMPTED, NODE_FAIL) and let the job wait again."""
        with fake.state(self.folder) as data:
            fake.requeue(data, self._find(data, job_id), ended_as)

    def forget(self, job_id: str | int, *, sacct: bool = False) -> None:
        """Drop a job from squeue (MinJobAge passed), with sacct=True from the accounts too."""
        with fake.state(self.folder) as data:
            job = self._find(data, job_id)
            job["in_squeue"] = False
            job["in_sacct"] = not sacct

    def hide_from_sacct(self, job_id: str | int, hidden: bool = True) -> None:
        """Let slurmdbd be late with a job."""
        with fake.state(self.folder) as data:
            self._find(data, job_id)["in_sacct"] = not hidden

    def fail(
        self,
        command: str,
        *,
        rc: int = 1,
        stderr: str = "",
        stdout: str = "",
        times: int = 1,
        delay_seconds: float = 0.0,
        run_anyway: bool = False,
    ) -> None:
        """Make the next calls of a command fail; run_anyway: the work is done nevertheless."""
        fault = {
            "command": command,
            "rc": rc,
            "stderr": stderr,
            "stdout": stdout,
            "times": times,
            "delay_seconds": delay_seconds,
            "run_anyway": run_anyway,
        }
        with fake.state(self.folder) as data:
            data["faults"].append(fault)

    def heal(self) -> None:
        """Drop the faults that were not played yet."""
        with fake.state(self.folder) as data:
            data["faults"] = []

    def calls(self, command: str | None = None) -> list[list[str]]:
        """Return the arguments of each call so far."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        calls = [ast.literal_eval(line) for line in lines]
        return [argv for name, argv in calls if command in (None, name)]

    def wait_for(self, job_id: str | int, *states: str, timeout_seconds: float = 60.0) -> fake.Job:
        """Wait until a job that runs is in one of the states."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            job = self.job(job_id)
            if job["state"] in states:
                return job
            time.sleep(0.05)
        raise AssertionError(f"job {job_id} is {self.job(job_id)['state']}, not {states}")

    def end_all(self) -> None:
        """End what still runs."""
        for job in self.jobs():
            fake.stop(job, signal.SIGKILL)

    @staticmethod
    def _find(data: dict[str, Any], job_id: str | int) -> fake.Job:
        for job in data["jobs"].values():
            if str(job_id) in (str(job["job_id"]), fake.text_id(job)):
                return job
        raise KeyError(job_id)


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSlurm]:
    """A fresh fake cluster, on PATH of this process and of those that it starts."""
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    cluster = FakeSlurm(folder)
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.end_all()


@pytest.fixture(scope="session")
def path_without_slurm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with all of this machine's commands but Slurm's."""
    folder = tmp_path_factory.mktemp("bin")
    for position in os.get_exec_path():
        with contextlib.suppress(OSError):
            for path in Path(position).iterdir():
                if path.name not in ("sbatch", "srun", "scontrol", "nvidia-smi"):
                    with contextlib.suppress(FileExistsError):
                        (folder / path.name).symlink_to(path)
    return str(folder)


@pytest.fixture(scope="session")
def pycache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes of a test run keep their bytecode; the workers of xdist share it."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "pycache"


@pytest.fixture(scope="session")
def forking() -> Iterator[zygote.Zygote]:
    """What the commands of a test run are forked from."""
    environ = {**os.environ, "PYTHONPATH": str(command_line.CHECKOUT)}
    started = zygote.Zygote(lambda words: [sys.executable, *words], env=environ)
    with contextlib.closing(started):
        yield started


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests that are marked so on both databases."""
    if metafunc.definition.get_closest_marker("both_databases"):
        metafunc.parametrize("database_kind", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database_kind(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", request.config.getoption("--database"))


@pytest.fixture
def location(request: pytest.FixtureRequest, database_kind: str) -> Iterator[str | None]:
    """The URL of an empty database on the server; none: a file, where the test likes it."""
    if database_kind == "sqlite":
        yield None
        return
    server = request.getfixturevalue("postgresql_server")
    url = server.make(request.getfixturevalue("postgresql_template"))
    yield url
    server.drop(url)


@pytest.fixture
def cli(
    fake_slurm: FakeSlurm,
    tmp_path: Path,
    pycache: Path,
    location: str | None,
    forking: zygote.Zygote,
) -> command_line.CommandLine:
    """The orchestrator command, beside the fake cluster."""
    return command_line.CommandLine(tmp_path, fake_slurm.environ, pycache, location, forking)
