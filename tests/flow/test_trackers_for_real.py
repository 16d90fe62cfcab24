"""Exports read back by the real TensorBoard, an MLflow server and W&B's own reader.

Their packages are too large for the test environment: ORCHESTRATOR_TEST_TRACKERS names a folder of
`pip install --target FOLDER tensorboard mlflow wandb "setuptools<81"`.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

FOLDER = os.environ.get("ORCHESTRATOR_TEST_TRACKERS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER, reason="ORCHESTRATOR_TEST_TRACKERS names no folder of packages"),
]
WANDB = Path(__file__).parents[1] / "wandb_reader.py"
TENSORBOARD = """
import json, sys
from tensorboard.backend.event_processing import event_accumulator
read = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
read.Reload()
names = read.Tags()["scalars"]
print(json.dumps({name: [[e.step, e.value] for e in read.Scalars(name)] for name in names}))
"""


def read(program: str, *arguments: str | Path) -> object:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": FOLDER},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def lines(steps: range, factor: float) -> str:
    return "".join(f"step {step} loss {step * factor:.4f} lr {step / 8:.3f}\n" for step in steps)


def start_attempt(cli: command_line.CommandLine, attempt: int, text: str) -> None:
    """Append what an attempt prints to the log of job 1."""
    (log,) = cli.run_folders()[0].glob("*.out")
    banner = f"=== orchestrator x job 1 task 0 attempt {attempt} on n1 at 2026-01-02T03:04:05Z ==="
    with log.open("a") as file:
        file.write(f"{banner}\n{text}")


@pytest.fixture
def job(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> str:
    fake_slurm.run_jobs()
    assert cli("submit", "--name", "x", "--command", "true", "--wait").code == 0
    return "x"


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return the address of a server and its database."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    folder = tmp_path / "mlflow"
    folder.mkdir()
    store = f"sqlite:///{folder}/mlflow.db"
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--backend-store-uri", store, "--artifacts-destination", folder),
        ],
        env={**os.environ, "PYTHONPATH": FOLDER, "MLFLOW_DISABLE_TELEMETRY": "true"},
        cwd=folder,
        start_new_session=True,
    )
    try:
        # It takes a minute on a busy machine.
        while not answers(port):
            assert server.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", folder / "mlflow.db"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def stored(database: Path) -> dict[str, list[tuple[int, float]]]:
    """Return what the runs that are not deleted have."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT key, step, value FROM metrics JOIN runs USING (run_uuid) "
            "WHERE lifecycle_stage = 'active' ORDER BY step"
        ).fetchall()
        count = "SELECT count(*) FROM runs WHERE lifecycle_stage = 'active'"
        assert connection.execute(count).fetchone() == (1,)
    found = collections.defaultdict(list)
    for key, step, value in rows:
        found[key].append((step, value))
    return dict(found)


def count(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM metrics").fetchone()[0])


def wait_for_values(database: Path, enough: int, process: subprocess.Popen[str]) -> None:
    while count(database) < enough and process.poll() is None:
        time.sleep(0.01)


def test_an_mlflow_server_has_each_value_once_although_exports_are_killed(
    cli: command_line.CommandLine, job: str, mlflow_server: tuple[str, Path]
) -> None:
    address, database = mlflow_server
    command = ("metrics", "export", job, "--to", "mlflow", "--uri", address, "--json")
    environ = {"PYTHONPATH": FOLDER}
    expected: dict[int, float] = {}
    sent = 0
    for attempt, steps in enumerate((range(6000), range(5000, 11000))):
        factor = (attempt + 1) / 8
        start_attempt(cli, attempt, lines(steps, factor))
        expected |= {step: round(step * factor, 4) for step in steps}

        for _ in range(3):
            process = cli.start(*command, **environ)
            wait_for_values(database, count(database) + random.randrange(1, 6000), process)
            process.kill()
            process.communicate()
            sent += process.returncode == -signal.SIGKILL
        assert cli(*command, **environ).code == 0
        found = stored(database)
        assert found["loss"] == sorted(expected.items())
        assert found["learning_rate"] == [(step, step / 8) for step in sorted(expected)]
    assert sent
    assert cli(*command, **environ).items[0]["added"] == 0
    assert stored(database) == found


def test_tensorboard_reads_every_value_after_each_export(
    cli: command_line.CommandLine, job: str
) -> None:
    expected: dict[int, float] = {}
    for attempt, steps in enumerate((range(3000), range(2000, 5000), range(5000, 9000))):
        factor = (attempt + 1) / 8
        start_attempt(cli, attempt, lines(steps, factor))
        expected |= {step: step * factor for step in steps}
        (row,) = cli("metrics", "export", job, "--to", "tensorboard", "--json").items
        found = read(TENSORBOARD, row["place"])
        assert isinstance(found, dict) and sorted(found) == ["learning_rate", "loss"]
        assert sorted(found["loss"]) == [[step, value] for step, value in sorted(expected.items())]
        assert len(found["learning_rate"]) == len(expected)


def test_wandb_has_one_run_in_folders_that_add_up(cli: command_line.CommandLine, job: str) -> None:
    environ = {"PYTHONPATH": FOLDER}
    token = cli.rows("SELECT token FROM submissions")[0][0]
    expected: dict[int, float] = {}
    for attempt, (steps, identity) in enumerate(
        (
            (range(300), f"{token}-export"),
            (range(300, 500), f"{token}-export"),
            # A step that was exported is run again.
            (range(450, 900), f"{token}-export2"),
        )
    ):
        factor = (attempt + 1) / 8
        start_attempt(cli, attempt, lines(steps, factor))
        expected |= {step: step * factor for step in steps}
        done = cli("metrics", "export", job, "--to", "wandb", "--json", **environ)
        assert done.code == 0, done
        files = sorted(cli.folder.glob("wandb-export/wandb/offline-run-*/*.wandb"))
        found = read(WANDB.read_text(), *files)
        assert isinstance(found, list)
        assert [run[:3] for run in found] == [[identity, "", f"x.{token}"]] * len(found)
        rows = [row for run in found for row in run[3]]
        assert [row["_step"] for row in rows] == [*range(len(expected))]
        assert {row["step"]: row["loss"] for row in rows} == expected
    assert len(files) == 1
    shutil.rmtree(cli.folder / "wandb-export")
