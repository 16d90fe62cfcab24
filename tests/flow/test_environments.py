"""Environments of attempts, from the job's script to `show --environment`."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.flow import command_line, test_local
from tests.flow.conftest import FakeSlurm

here = test_local.here
ARRAY = '[job]\nname = "grid"\ntime_limit = "10"\n[launch]\ncommand = "true"\n[array]\nsize = 3\n'
REQUEUES = """
import os, pathlib, sys
packages = pathlib.Path(sys.prefix).glob("lib/python3.*/site-packages/torch-*.dist-info")
if os.environ["ORCHESTRATOR_ATTEMPT"] == "0":
    next(packages).rename(next(pathlib.Path(sys.prefix).glob("lib/python3.*/site-packages"))
                          / "torch-2.7.0.dist-info")
    pathlib.Path(os.environ["ORCHESTRATOR_REQUEUE_FILE"]).touch()
"""


def make_venv(folder: Path) -> tuple[Path, str]:
    """Make a virtual environment with two packages; return it and its version of Python."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python3.*/site-packages")
    for name in ("torch-2.6.0+cu124", "nvidia_nccl_cu12-2.21.5"):
        (site / f"{name}.dist-info").mkdir()
    return venv, ".".join(map(str, sys.version_info[:3]))


def test_a_job_that_is_requeued_with_another_package(here: command_line.CommandLine) -> None:
    venv, version = make_venv(here.home)
    (here.folder / "train.py").write_text(REQUEUES)
    line = ("--scheduler", "local", "--launcher", "python", "--set", f"environment.venv={venv}")
    hidden = {"NCCL_DEBUG": "INFO", "NCCL_TOKEN": "secret"}
    done = here("submit", "--name", "x", *line, "--wait", "train.py", **hidden)
    assert done.code == 0, done
    shown = here("show", "x", "--environment").out
    lines = shown.splitlines()
    host = lines[2].removeprefix("Host:        ")
    assert lines[:6] == [
        "Job:         local-1 (@1)",
        "Attempt:     1",
        f"Host:        {host}",
        f"Python:      {version} ({venv}/bin/python3)",
        "PyTorch:     2.7.0",
        "NCCL:        2.21.5",
    ]
    assert "  NCCL_DEBUG=INFO" in lines and "secret" not in shown
    assert "  SLURM_JOB_NUM_NODES=1" in lines
    assert lines[lines.index("Different in attempt 0:") :] == [
        "Different in attempt 0:",
        "  package torch: 2.6.0+cu124 (attempt 1: 2.7.0)",
        "",
        "Packages (2):",
        "PACKAGE           VERSION",
        "nvidia-nccl-cu12  2.21.5",
        "torch             2.7.0",
    ]
    assert here.rows("SELECT job_row, attempt FROM attempt_environments ORDER BY 2") == [
        (1, 0),
        (1, 1),
    ]
    first, second = here("show", "x", "--environment", "--json").items
    assert (first["attempt"], second["attempt"]) == (0, 1)
    assert first["libraries"] == {"pytorch": "2.6.0+cu124", "cuda": "12.4", "nccl": "2.21.5"}
    assert first["packages"]["torch"] == "2.6.0+cu124"
    assert first["placement"]["host"] == host and first["container"] is None
    table = here("show", "x", "--environment", "--format", "tsv").out.splitlines()
    assert table[0] == "job_id\tattempt\tkind\tname\tvalue"
    assert f"local-1\t1\tsystem\tpython_version\t{version}" in table
    assert table[-1] == "local-1\t1\tpackage\ttorch\t2.7.0"


def test_equal_tasks_share_an_environment(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.run_jobs()
    assert cli("submit", cli.spec(ARRAY), "--wait").code == 0
    assert cli.rows(
        "SELECT job_row, attempt, environment_id FROM attempt_environments ORDER BY 1"
    ) == [
        (1, 0, 1),
        (2, 0, 1),
        (3, 0, 1),
    ]
    assert cli("show", "grid", "--environment").out.startswith("Job:         1_0 (@1)\nAttempt: ")
    items = cli("show", "grid", "--environment", "--json").items
    assert [item["job_id"] for item in items] == ["1_0", "1_1", "1_2"]
    # Another version of the driver on the node of one task.
    document = json.loads(cli.rows("SELECT document FROM environments")[0][0])
    other = json.dumps({**document, "driver": "570.1"}, sort_keys=True)
    cli.needs_file()
    with sqlite3.connect(cli.database) as connection:
        digest = hashlib.sha256(other.encode()).hexdigest()
        connection.execute("INSERT INTO environments VALUES (2, ?, ?)", (digest, other))
        connection.execute("UPDATE attempt_environments SET environment_id = 2 WHERE job_row = 3")
    connection.close()
    assert "\nTasks with another environment: 1_2\n" in cli("show", "grid", "--environment").out
    assert cli("db", "check").code == 0


def test_a_job_without_a_record(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    (cli.folder / "train.py").touch()
    assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    done = cli("show", "demo", "--environment")
    assert (done.code, done.out) == (4, "")
    assert done.err == (
        "Error: no environment of 1 is recorded: its script records it when the job has started, "
        "unless an older version of orchestrator made the script\n"
    )


def test_the_digest_of_an_image_is_that_of_the_submission(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    (cli.folder / "train.py").touch()
    image = cli.folder / "image.sif"
    image.write_bytes(b"first")
    words = ("--container-runtime", "apptainer", "--set", "container.image=image.sif")
    assert cli("submit", "--name", "demo", *words, "train.py").code == 0
    image.write_bytes(b"second")
    (item,) = cli("show", "demo", "--json").items
    stored = item["provenance"]["container"]
    assert stored["sha256"] == hashlib.sha256(b"first").hexdigest()
    assert (stored["runtime"], stored["image"]) == ("apptainer", "image.sif")
    assert (stored["path"], stored["size_bytes"]) == (str(image), 5)
