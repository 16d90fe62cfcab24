"""Fixtures of the trainer tests: an environment without variables of Slurm and orchestrator."""

import gc
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests import zygote
from tests.trainer import workers

ROOT = pathlib.Path(__file__).parents[2]
FOREIGN = ("SLURM_", "ORCHESTRATOR_", "TORCHELASTIC_", "MASTER_")
FOREIGN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")

# To import PyTorch takes 12 s of CPU, and a busy machine gives a tenth of one. A test has ten
# minutes.
TIMEOUT_SECONDS = 570

# Two pytest workers with two ranks each share the cores. The tier takes 188 s with one thread per
# rank, and 229 s with one thread per core. PyTorch reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session", autouse=True)
def _watch_workers() -> None:
    workers.watch()


@pytest.fixture(autouse=True)
def _end_workers() -> Iterator[None]:
    yield
    workers.end()


@pytest.fixture(scope="session")
def clean_environ() -> dict[str, str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN) and name not in FOREIGN_NAMES
    }
    return environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}


@pytest.fixture(scope="session")
def warm(clean_environ: Mapping[str, str]) -> Iterator[zygote.Zygote]:
    """A process with PyTorch, in whose forks programs run."""
    process = zygote.Zygote(
        lambda words: [sys.executable, "-m", "tests.trainer.warm", words[-1]], env=clean_environ
    )
    yield process
    # DataLoader workers that only garbage refers to would keep the connection open.
    gc.collect()
    process.close()


@pytest.fixture(scope="session")
def start(
    clean_environ: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python with some arguments in a new process, outside of the checkout."""

    def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=clean_environ,
            cwd=tmp_path_factory.mktemp("cwd"),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def launch(
    clean_environ: Mapping[str, str],
    start: Callable[..., subprocess.CompletedProcess[str]],
    warm: zygote.Zygote,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in a fork of a process that has imported PyTorch, which saves seconds."""

    def run(arguments: Sequence[str], **environ: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "-W":
            return start(arguments)
        folder = str(tmp_path_factory.mktemp("cwd"))
        request = zygote.Request(
            argv=list(arguments), environ={**clean_environ, **environ}, folder=folder
        )
        code, stdout, stderr = warm.run(request, TIMEOUT_SECONDS)
        return subprocess.CompletedProcess(request.argv, code, stdout.decode(), stderr.decode())

    return run


@pytest.fixture
def orchestrator(clean_environ: Mapping[str, str], tmp_path: pathlib.Path) -> Callable[..., str]:
    """Run a command of ours in tmp_path, without Slurm and GPUs, and return its output."""
    environ = {
        **clean_environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_CONFIG_DIRS": str(tmp_path / "site"),
        "CUDA_VISIBLE_DEVICES": "",
        # torchrun of this very Python.
        "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def run(*argv: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run
