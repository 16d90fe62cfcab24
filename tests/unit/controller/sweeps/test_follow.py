"""A followed sweep has the same results as one that is read from the start, whatever changed."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import config, jobs, metrics, sweeps
from orchestrator.controller.session import contexts, stores
from orchestrator.controller.sweeps import follow
from orchestrator.metrics import choices
from orchestrator.toml import documents
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
SPEC = """
[job]
name = "grid"
[launch]
script = "train.py"
[sweep]
kind = "grid"
[sweep.axes]
"args.lr" = [0.1, 0.2, 0.3]
"""


@pytest.fixture
def context(tmp_path: Path) -> Iterator[contexts.Context]:
    with stores.Store(tmp_path / "orchestrator.db") as store:
        yield builders.make_context(tmp_path, store, now=NOW)


def test_results_follow_every_change(context: contexts.Context) -> None:
    document, problems = documents.parse(SPEC, "grid.toml")
    planned = sweeps.expand(document, config.Profile(name="lab"), problems)
    with context.store.writing() as work:
        row = work.sweeps.add(
            planned,
            profile="lab",
            cluster="lab",
            scheduler="slurm",
            source="grid.toml",
            folder="/",
            created_at=NOW,
        ).row
    followed = follow.Followed(row)

    def check(*expected: tuple[str | None, float | None]) -> None:
        for one in (followed, follow.Followed(row)):
            names = one.material(context).names
            chosen = choices.resolve(["loss"], names, 0) if names else []
            runs = one.runs(context, chosen)[1]
            values = [run.measured[0].value if chosen and run.measured[0] else None for run in runs]
            states = [None if run.state is None else str(run.state) for run in runs]
            assert list(zip(states, values, strict=True)) == list(expected)

    check((None, None), (None, None), (None, None))
    first = [submit(context, row, number) for number in (1, 2)]
    check(("RUNNING", None), ("RUNNING", None), (None, None))
    report(context, first[0], 2.5)
    check(("RUNNING", 2.5), ("RUNNING", None), (None, None))
    report(context, first[0], 1.5)
    report(context, first[1], 7.0)
    check(("RUNNING", 1.5), ("RUNNING", 7.0), (None, None))
    change(context, first[1], jobs.JobState.FAILED)
    submit(context, row, 3)
    check(("RUNNING", 1.5), ("FAILED", 7.0), ("RUNNING", None))
    # Submitted again from the start: only the new job counts.
    again = submit(context, row, 2)
    check(("RUNNING", 1.5), ("RUNNING", None), ("RUNNING", None))
    report(context, again, 0.5)
    change(context, again, jobs.JobState.COMPLETED)
    check(("RUNNING", 1.5), ("COMPLETED", 0.5), ("RUNNING", None))
    with context.store.writing() as work:
        work.metrics.delete_file(first[0].row, "/log")
        work.events.add(first[0].row, context.event("metrics", "read again"))
    check(("RUNNING", None), ("COMPLETED", 0.5), ("RUNNING", None))
    report(context, first[0], 9.0)
    check(("RUNNING", 9.0), ("COMPLETED", 0.5), ("RUNNING", None))
    more = sweeps.expand(
        documents.parse(SPEC.replace("0.3]", "0.3, 0.4]"), "grid.toml")[0],
        config.Profile(name="lab"),
        problems,
    )
    with context.store.writing() as work:
        work.sweeps.add_points(row, more.points[3:])
        work.events.add(first[0].row, context.event("sweep", "points were added"))
    check(("RUNNING", 9.0), ("COMPLETED", 0.5), ("RUNNING", None), (None, None))


def submit(context: contexts.Context, row: int, number: int) -> jobs.Job:
    """Submit a point, which runs at once."""
    with context.store.writing() as work:
        number_of_jobs = len(work.jobs.find_rows(jobs.JobQuery(limit=None)))
        record = builders.make_submission(number_of_jobs + 1, NOW, name="grid")
        (job,) = work.jobs.add_submission(record, sweep="grid", state=jobs.JobState.RUNNING)
        point = sweeps.points_of(work.sweeps.points(row))[number - 1]
        assert work.sweeps.assign_jobs(row, [point], [job.row])
        work.events.add(job.row, context.event("submit", "submitted"))
    return job


def report(context: contexts.Context, job: jobs.Job, value: float) -> None:
    with context.store.writing() as work:
        line = metrics.ParsedLine(
            "/log", "log:x", 0, None, 1, (("loss", ""),), 1, 0, None, 1, (value,)
        )
        work.metrics.add(job.row, [line])


def change(context: contexts.Context, job: jobs.Job, state: jobs.JobState) -> None:
    with context.store.writing() as work:
        work.jobs.change_many([(job.row, {"state": state}, None)])
        work.events.add(job.row, context.event("state", f"-> {state}"))
