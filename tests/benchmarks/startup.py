"""The start of commands: imports, and `status` with a large database."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

import sqlalchemy as sa

from db.sqlite.database import SqliteDatabase
from db.tables.jobs import JOBS, SUBMISSIONS
from orchestrator.controller.session import stores
from tests import postgresql
from tests.benchmarks import ratios
from tests.cluster import machine

#: Jobs that ended within the last day, which `status` lists by default.
RECENT = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000, 100_000])


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if a ratio exceeds its budget."""
    result = [
        ratios.measure(
            "`orchestrator --help` / `import click`",
            _orchestrator({}, "--help"),
            _python("import click"),
            repeats=arguments.repeats,
            budget=1.3,
        )
    ]
    for count in arguments.jobs:
        with tempfile.TemporaryDirectory() as folder:
            environ = filled(pathlib.Path(folder), count)
            result.append(
                ratios.measure(
                    f"`orchestrator status` of {count:,} jobs / `import click, sqlalchemy.orm`",
                    _orchestrator(environ, "status"),
                    _python("import click, sqlalchemy.orm"),
                    repeats=arguments.repeats,
                    budget=1.3,
                )
            )
            lab, release = machine.lab_dir(), machine.slurm_release()
            with (
                contextlib.suppress(postgresql.Unavailable),
                postgresql.running(lab, release) as server,
            ):
                result.append(
                    ratios.measure(
                        f"the same {count:,} on PostgreSQL / on SQLite",
                        _orchestrator(copied(environ, server.make()), "status"),
                        _orchestrator(environ, "status"),
                        repeats=arguments.repeats,
                        budget=None,
                    )
                )
    print(ratios.table(result))
    return 0 if all(ratio.kept for ratio in result) else 1


def copied(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Copy a database to a PostgreSQL server; return the environment for it."""
    file = pathlib.Path(environ["ORCHESTRATOR_STATE_DIR"], "orchestrator.db")
    with stores.Store(file) as store:
        store.copy_to(url)
    postgresql.ask(url, "ANALYZE")
    return {**environ, "ORCHESTRATOR_DATABASE": url}


def _orchestrator(environ: Mapping[str, str], *argv: str) -> Callable[[], object]:
    return _command([sys.executable, "-m", "orchestrator", *argv], environ)


def _python(program: str) -> Callable[[], object]:
    return _command([sys.executable, "-c", program], {})


def _command(argv: list[str], environ: Mapping[str, str]) -> Callable[[], object]:
    def run_it() -> None:
        subprocess.run(argv, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, check=True)

    return run_it


def filled(folder: pathlib.Path, count: int) -> dict[str, str]:
    """Create a database of ended jobs, RECENT of them recent; return the environment for it."""
    now = datetime.datetime.now(datetime.UTC)
    submissions, jobs = [], []
    for number in range(1, count + 1):
        age = datetime.timedelta(minutes=20 * (count - number))
        if count - number >= RECENT:
            age += datetime.timedelta(days=2)
        at = now - age
        submissions.append(
            {
                "id": number,
                "token": f"{number:032x}",
                "cluster": "lab",
                "scheduler": "slurm",
                "name": f"train-{number % 100}",
                "run_dir": f"/scratch/runs/{number}",
                "created_at": at,
                "script": "#!/bin/bash\n" + "# a line of the script\n" * 200,
                "spec": "{}",
                "provenance": "{}",
            }
        )
        jobs.append(
            {
                "submission_id": number,
                "array_task": 0,
                "state": "COMPLETED" if number % 7 else "FAILED",
                "raw_state": "COMPLETED" if number % 7 else "FAILED",
                "settled": True,
                "created_at": at,
                "job_id": str(number),
                "raw_job_id": str(number),
                "exit_code": 0 if number % 7 else 1,
                "exit_signal": 0,
                "partition": "gpu",
                "nodes": 2,
                "gpus": 8,
                "node_list": "n[1-2]",
                "time_limit_seconds": 3600,
                "submitted_at": at,
                "started_at": at,
                "ended_at": at + datetime.timedelta(minutes=10),
                "attempt": 0,
                "restart_count": 0,
                "labels": (),
                "misses": 0,
                "version": 3,
            }
        )
    with (
        SqliteDatabase(folder / "orchestrator.db") as database,
        database.writing() as writing,
    ):
        writing.execute(sa.insert(SUBMISSIONS), submissions)
        writing.execute(sa.insert(JOBS), jobs)
    return {"XDG_CONFIG_HOME": str(folder), "ORCHESTRATOR_STATE_DIR": str(folder)}
