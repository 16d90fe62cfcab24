"""How many transactions `orchestrator status` opens: at most four, reads and writes together."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

#: Runs a command and prints what each transaction was for.
COUNT = """
import sys
from db import database
connect = database.Database._connection
def connection(self, mode):
    print("transaction:", mode.value, file=sys.stderr)
    return connect(self, mode)
database.Database._connection = connection
sys.argv[0] = "orchestrator"
from orchestrator import __main__
sys.exit(__main__.main())
"""


def transactions(cli: command_line.CommandLine, *argv: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *argv],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **cli.environ},
        cwd=cli.folder,
    )
    lines = [line.partition(": ") for line in done.stderr.splitlines()]
    return [mode for name, _, mode in lines if name == "transaction"]


@pytest.mark.parametrize("refresh", ["--refresh", "--no-refresh"])
def test_status_of_four_jobs(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, refresh: str
) -> None:
    (cli.folder / "train.py").touch()
    for _ in range(4):
        assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    fake_slurm.set_state(2, "RUNNING")
    fake_slurm.set_state(3, "COMPLETED")
    cli("refresh")
    fake_slurm.set_state(1, "RUNNING")
    # sacct is queried for it.
    fake_slurm.set_state(2, "COMPLETED")
    if refresh == "--refresh":
        assert transactions(cli, "status", refresh) == ["read", "write", "write", "read"]
    else:
        assert transactions(cli, "status", refresh) == ["read"]
