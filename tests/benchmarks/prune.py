"""How long `prune --rows` keeps other writers waiting."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import multiprocessing
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import synchronize

import sqlalchemy as sa

from db.database import Database
from orchestrator import config, jobs, metrics, specs, sweeps
from orchestrator.controller.prune import plan, removal
from orchestrator.controller.session import stores
from orchestrator.files import run_folder
from orchestrator.prune import Kind
from orchestrator.toml import documents
from tests import builders

BUDGET_SECONDS = 0.2
_ENDED_AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_SWEEP = """\
[job]
name = "point"
[launch]
launcher = "python"
module = "x"
[sweep]
kind = "grid"
axes.args.seed = {}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--jobs", type=int, default=10_000, help="half of them in one sweep")
    parser.add_argument("--values", type=int, default=1_000_000, help="of metrics, one in a line")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; return 1 if a transaction exceeds the budget."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with stores.Store(folder / "orchestrator.db") as store:
            context = builders.make_context(folder, store, now=_ENDED_AT + datetime.timedelta(30))
            context = builders.with_clock(context, sleep=time.sleep)
            context.configuration.runs_dir.mkdir(parents=True)
            _fill(store, context.configuration.runs_dir, arguments)
            rows = plan.Selection(query=jobs.JobQuery(limit=None), kinds=frozenset({Kind.ROWS}))
            planned = plan.make(context, rows)
            ended, waits = multiprocessing.Event(), multiprocessing.Queue()
            writer = multiprocessing.Process(
                target=_write, args=(folder / "orchestrator.db", ended, waits)
            )
            writer.start()
            began = time.monotonic()
            with _measured() as seconds:
                result = removal.carry_out(context, planned)
            duration = time.monotonic() - began
            ended.set()
            waited = waits.get()
            writer.join()
            with store.reading() as work:
                remaining = len(work.jobs.find_rows(jobs.JobQuery(limit=None)))
    print(
        f"{arguments.jobs:,} jobs with {arguments.values:,} values, load {os.getloadavg()[0]:.1f}: "
        f"{duration:.1f} s, {remaining} left, problems: {result.problems}\n"
        f"{len(seconds)} transactions: median {statistics.median(seconds):.3f} s, "
        f"longest {max(seconds):.3f} s (budget {BUDGET_SECONDS})\n"
        f"another writer: {len(waited)} transactions, median {statistics.median(waited):.3f} s, "
        f"longest {max(waited):.3f} s"
    )
    return 0 if max(seconds) <= BUDGET_SECONDS else 1


def _fill(store: stores.Store, runs_dir: pathlib.Path, arguments: argparse.Namespace) -> None:
    """Add ended jobs, whose run folders are gone already."""
    half = arguments.jobs // 2
    with store.writing() as work:
        rows = [
            job.row
            for tasks in [range(half), *([None] * (arguments.jobs - half))]
            for job in _add(work, runs_dir, tasks)
        ]
        each = arguments.values // len(rows)
        values = [
            jobs.Metric(name="loss", value=step / 7, source="log:x", path="x", line=step)
            for step in range(1, each + 1)
        ]
        lines = [metrics.ParsedLine.of(value) for value in values]
        for row in rows:
            work.metrics.add(row, lines)
            work.environments.put([(row, 0, (f"{row:064x}", '{"a": "b"}'), "{}")])
        document, problems = documents.parse(_SWEEP.format([*range(half)]), "s.toml")
        stored = work.sweeps.add(
            sweeps.expand(document, config.Profile(name="lab"), problems),
            profile="lab",
            cluster="lab",
            scheduler="slurm",
            source="s.toml",
            folder="/",
            created_at=_ENDED_AT,
        )
        chosen = sweeps.points_of(work.sweeps.points(stored.row))
        assert work.sweeps.assign_jobs(stored.row, chosen, rows[:half])


def _add(work: stores.UnitOfWork, runs_dir: pathlib.Path, tasks: range | None) -> list[jobs.Job]:
    token = run_folder.new_token(work.settings.installation_id())
    spec = jobs.JobSpec(name="x", launch=jobs.Launch(command="true"))
    submission = jobs.Submission(
        token=token,
        cluster="lab",
        scheduler="slurm",
        name="x",
        script="#!/bin/bash\n" + "# a line of the script\n" * 200,
        spec=specs.to_json(spec),
        run_dir=str(runs_dir / run_folder.slurm_name("x", token)),
        provenance="{}",
        created_at=_ENDED_AT,
    )
    state = jobs.JobState.COMPLETED
    known = {"state": state, "settled": True, "ended_at": _ENDED_AT}
    added = work.jobs.add_submission(submission, array_tasks=tasks, **known)
    work.attempts.put([(job.row, jobs.Attempt(number=0, state=state)) for job in added])
    return added


@contextlib.contextmanager
def _measured() -> Iterator[list[float]]:
    """Yield a list of how long each transaction keeps other writers waiting."""
    seconds: list[float] = []
    writing = Database.writing

    @contextlib.contextmanager
    def measured(self: Database, *, durable: bool = False) -> Iterator[sa.Connection]:
        with writing(self, durable=durable) as connection:
            began = time.monotonic()
            yield connection
        seconds.append(time.monotonic() - began)

    Database.writing = measured
    try:
        yield seconds
    finally:
        Database.writing = writing


def _write(
    path: pathlib.Path, ended: synchronize.Event, waits: multiprocessing.Queue[list[float]]
) -> None:
    """Store something about 20 times a second, as other commands do."""
    seconds = []
    with stores.Store(path) as store:
        while not ended.wait(0.05):
            began = time.monotonic()
            with store.writing() as work:
                work.settings.put("benchmark", str(began))
            seconds.append(time.monotonic() - began)
    waits.put(seconds)
