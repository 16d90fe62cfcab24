"""Dependencies: references to jobs and sweeps, their status, and end states that count."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import errors, jobs
from orchestrator.controller.session import stores
from orchestrator.controller.submission import dependencies
from orchestrator.jobs import dependency
from orchestrator.toml import values
from tests import builders

_ALL = jobs.JobQuery(limit=None)
NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
COMPLETED, FAILED, RUNNING = (
    jobs.JobState.COMPLETED,
    jobs.JobState.FAILED,
    jobs.JobState.RUNNING,
)


@pytest.mark.parametrize(
    ("text", "slurms", "named"),
    [
        ("afterok:123:124_3", "afterok:123:124_3", []),
        ("afterok:local-7", "afterok:local-7", []),
        ("singleton,afterok:@7:prep", "singleton", [("afterok", "@7"), ("afterok", "prep")]),
        ("afterany:sweep/lr,after:9", "after:9", [("afterany", "sweep/lr")]),
        ("afternotok:sweep/@3", None, [("afternotok", "sweep/@3")]),
    ],
)
def test_dependencies_of_slurm_and_of_ours(
    text: str, slurms: str | None, named: list[tuple[str, str]]
) -> None:
    assert values.form_error("dependency", text) == ""
    parts = dependency.split(text)
    reported = [(each.kind, ("sweep/" if each.is_sweep else "") + each.name) for each in parts[1]]
    assert (parts[0], reported) == (slurms, named)


@pytest.mark.parametrize(
    "text", ["after:prep", "afterok:prep?afterok:x", "afterok:@", "afterok:sweep/", "afterok:a b"]
)
def test_invalid_dependencies(text: str) -> None:
    assert values.form_error("dependency", text) != ""


def add(
    store: stores.Store,
    name: str,
    state: jobs.JobState,
    *,
    tasks: int | None = None,
    **fields: object,
) -> list[jobs.Job]:
    with store.reading() as work:
        number = max((job.row for job in work.jobs.find(_ALL)), default=0) + 1
    record = builders.make_submission(number, NOW, name=name)
    array = None if tasks is None else range(tasks)
    settled = state in jobs.TERMINAL
    with store.writing() as work:
        return work.jobs.add_submission(
            record, array_tasks=array, state=state, settled=settled, **fields
        )


@pytest.fixture
def store(database_file: Path) -> Iterator[stores.Store]:
    with stores.Store(database_file) as store:
        yield store


def status(store: stores.Store, text: str) -> dependency.Status:
    with store.reading() as work:
        return dependencies.status(work, dependencies.resolve(work, dependency.split(text)[1]))


def test_status_of_a_dependency_on_a_job(store: stores.Store) -> None:
    add(store, "prep", COMPLETED, job_id="1")
    add(store, "prep", RUNNING, job_id="2")
    add(store, "bad", FAILED, job_id="3")
    add(store, "later", jobs.JobState.NOT_SUBMITTED, resend_at=NOW)
    assert status(store, "afterok:@1") == dependency.Status()
    assert status(store, "afterok:prep").text == "afterok:2"
    assert status(store, "afterok:bad").never == ("afterok: 3 (bad) ended FAILED",)
    assert status(store, "afternotok:@1").never == ("afternotok: 1 (prep) ended COMPLETED",)
    assert status(store, "afterany:bad:prep").text == "afterany:2"
    assert status(store, "afterok:later").unsent == ("@4 (later) is not submitted yet",)
    with pytest.raises(errors.NotFoundError, match="job 'nobody' not found"):
        status(store, "afterok:nobody")
    with pytest.raises(errors.NotFoundError, match="sweep 'prep' not found"):
        status(store, "afterok:sweep/prep")
    add(store, "prep", RUNNING, job_id="5")
    with pytest.raises(errors.ConflictError, match="several live jobs have this name: @5, @2"):
        status(store, "afterok:prep")


def test_an_array_has_one_id_and_each_task_its_own(store: stores.Store) -> None:
    tasks = add(store, "many", RUNNING, tasks=3, array_job_id="9")
    with store.writing() as work:
        for index, job in enumerate(tasks):
            work.jobs.change(job.row, {"job_id": f"9_{index}"})
        work.jobs.change(tasks[0].row, {"state": COMPLETED, "settled": True})
    assert status(store, "afterok:many").text == "afterok:9"
    assert status(store, "afterok:@2").text == "afterok:9_1"


def test_a_continuation_job_replaces_the_failed_one(store: stores.Store) -> None:
    (first,) = add(store, "first", FAILED, job_id="1")
    (undecided,) = add(store, "undecided", FAILED, job_id="2", recovers=True)
    add(store, "second", RUNNING, job_id="3", continues=first.row)
    assert status(store, "afterok:first").text == "afterok:3"
    assert status(store, f"afterok:@{undecided.row}").unsent == (
        "@2 (undecided) ended FAILED and may be retried",
    )
    add(store, "third", COMPLETED, job_id="4", continues=3)
    assert status(store, "afterok:first") == dependency.Status()
    first_job = dependency.Dependency(kind="afterok", on_job=1)
    with store.reading() as work:
        assert dependencies.continuation(work, first_job) == 4


@pytest.mark.parametrize(
    ("text", "job_ids"),
    [
        ("", []),
        ("singleton", []),
        # Met by any end: a job that Slurm has forgotten has ended.
        ("afterany:7,after:8+5", []),
        ("afterok:7:8,afternotok:9", ["7", "8", "9"]),
        ("afterok:7?aftercorr:12_3", ["7", "12"]),
        ("afterok:12_*:12_3:12+10,afterany:5", ["12"]),
    ],
)
def test_jobs_whose_end_state_counts(text: str, job_ids: list[str]) -> None:
    assert dependencies.on_ends(text) == job_ids
