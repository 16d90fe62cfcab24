"""Dependents: only those of ended jobs are checked, and one failure does not stop the others."""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import errors, jobs, specs
from orchestrator.controller.graphs import dependents
from orchestrator.controller.session import clusters, contexts, stores
from orchestrator.jobs import dependency
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)


@dataclasses.dataclass(kw_only=True)
class Queue:
    """A database with jobs, and the dependencies that were set in Slurm."""

    context: contexts.Context
    asked: list[tuple[str, str]]
    jobs: int = 0

    def add(
        self,
        state: jobs.JobState,
        on_job: int | None = None,
        spec: str | None = None,
        **fields: object,
    ) -> int:
        self.jobs += 1
        with self.context.store.writing() as work:
            record = builders.make_submission(
                self.jobs, NOW, name="x", spec=spec or specs.to_json(jobs.JobSpec(name="x"))
            )
            (job,) = work.jobs.add_submission(record, state=state, job_id=str(self.jobs), **fields)
            if on_job is not None:
                depends = dependency.Dependency(kind="afterok", on_job=on_job)
                work.dependencies.add(job.row, [depends])
        return job.row

    def change(self, row: int, **changes: object) -> None:
        with self.context.store.writing() as work:
            work.jobs.change(row, changes)


@pytest.fixture
def queue(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    asked: list[tuple[str, str]] = []

    def set_dependency(job_id: str, text: str) -> None:
        asked.append((job_id, text))
        if job_id == "4":
            raise errors.SlurmError("Job/step already completing or completed")

    facts = types.SimpleNamespace(cluster="lab")
    monkeypatch.setattr(clusters, "facts", lambda context, **options: facts)
    client: Any = types.SimpleNamespace(set_dependency=set_dependency)
    with stores.Store(database_url) as store:
        context = builders.make_context(
            tmp_path, store, slurm=client, reporter=builders.NO_MESSAGES, now=NOW
        )
        yield Queue(context=context, asked=asked)


def test_a_rejected_change_does_not_stop_the_others(queue: Queue) -> None:
    failed = queue.add(jobs.JobState.FAILED, settled=True)
    runs = queue.add(jobs.JobState.RUNNING)
    queue.add(jobs.JobState.RUNNING, continues=failed)
    first, second = (queue.add(jobs.JobState.PENDING, failed) for _ in range(2))
    queue.add(jobs.JobState.PENDING, runs)
    with queue.context.store.reading() as work:
        assert work.dependencies.dependents() == [first, second]
    assert dependents.update(queue.context) == [
        "4 x: the dependency could not be changed: Job/step already completing or completed",
        "5 x now depends on afterok:3: the continuation job",
    ]
    assert queue.asked == [("4", "afterok:3"), ("5", "afterok:3")]
    assert len(dependents.update(queue.context)) == 1, "what was turned is not asked for again"


def test_spec_of_another_version_is_skipped(queue: Queue) -> None:
    failed = queue.add(jobs.JobState.FAILED, settled=True)
    queue.add(jobs.JobState.RUNNING, continues=failed)
    for spec in ('{"of_later": 1}', '{"of_later": 2}', None):
        queue.add(jobs.JobState.PENDING, failed, spec)
    *unread, turned = dependents.update(queue.context)
    assert len(unread) == 2 and "of_later" in unread[0]
    why = "another version wrote its spec: stored spec: "
    assert unread[0].startswith(f"3 x is skipped, {why}") and "\n" not in unread[0]
    assert turned == "5 x now depends on afterok:2: the continuation job"
    assert queue.asked == [("5", "afterok:2")]


@pytest.mark.parametrize("state, message", [("RUNNING", "afterok:1"), ("COMPLETED", "")])
def test_dependency_is_set_again_after_a_requeue(queue: Queue, state: str, message: str) -> None:
    failed = queue.add(jobs.JobState.FAILED, recovers=True)
    waits = queue.add(jobs.JobState.PENDING, failed, reason="DependencyNeverSatisfied")
    assert dependents.update(queue.context) == [], "what follows is not decided"
    queue.change(failed, state=jobs.JobState(state), attempt=1)
    sentence = f"now depends on {message or 'nothing'}: the failed job was started again"
    assert dependents.update(queue.context) == [f"2 x {sentence}"]
    assert dependents.update(queue.context) == [], "until Slurm says again that it waits in vain"
    assert queue.asked == [("2", message)]
    queue.change(failed, state=jobs.JobState.FAILED, recovers=None)
    queue.change(waits, reason="DependencyNeverSatisfied")
    assert dependents.update(queue.context) == [
        "2 x: it can never start: afterok: 1 (x) ended FAILED"
    ]
    assert len(queue.asked) == 1


def test_no_dependency_on_jobs_that_slurm_does_not_show(queue: Queue) -> None:
    """It drops what it has purged from a dependency, and starts who waited for its good end."""
    gone = queue.add(jobs.JobState.RUNNING, missing_since=NOW)
    queue.add(jobs.JobState.PENDING, gone, reason="DependencyNeverSatisfied")
    assert (dependents.update(queue.context), queue.asked) == ([], [])
    queue.change(gone, missing_since=None)
    assert dependents.update(queue.context) == [
        "2 x now depends on afterok:1: the failed job was started again"
    ]
