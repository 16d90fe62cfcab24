"""Reading the logs of ended jobs: each pass continues where the last one stopped."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs
from orchestrator.controller.metrics import ended_jobs, ingest
from orchestrator.controller.session import contexts, stores
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
ENDED = NOW - datetime.timedelta(hours=1)


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    with stores.Store(database_file) as store:
        yield builders.make_context(tmp_path, store, now=NOW)


class Reader:
    """Takes the place of ingest.ingest."""

    def __init__(self) -> None:
        #: rows of the jobs that each call got
        self.calls: list[list[int]] = []
        #: of these jobs a part is left
        self.unread: set[int] = set()

    def __call__(
        self, context: contexts.Context, selected: Sequence[jobs.Job], **options: Any
    ) -> ingest.Ingested:
        rows = sorted(job.row for job in selected)
        self.calls += [rows] if rows else []
        part = ingest.Unread(read_bytes=1, left_bytes=1, name="x")
        return ingest.Ingested(unread={row: part for row in rows if row in self.unread})


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    reader = Reader()
    monkeypatch.setattr(ingest, "ingest", reader)
    monkeypatch.setattr(ended_jobs, "_BATCH", 2)
    return reader


def add_ended(context: contexts.Context, count: int) -> None:
    ended: dict[str, Any] = {"settled": True, "ended_at": ENDED, "observed_at": ENDED}
    with context.store.writing() as work:
        for number in range(1, count + 1):
            record = builders.make_submission(number, NOW)
            (job,) = work.jobs.add_submission(record, state=jobs.JobState.COMPLETED)
            work.jobs.change(job.row, ended)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_each_log_is_read_once(context: contexts.Context, reader: Reader, count: int) -> None:
    with context.store.writing() as work:
        start = ended_jobs._progress_text([(ENDED - datetime.timedelta(hours=1), 0)])
        work.settings.put(ended_jobs.KEY, start)
    add_ended(context, count)
    for _ in range(2):
        ended_jobs.step(context)
    assert [row for rows in reader.calls for row in rows] == list(range(1, count + 1))


def test_unfinished_logs_are_read_again_after_an_empty_batch(
    context: contexts.Context, reader: Reader
) -> None:
    add_ended(context, 2)
    before = (ENDED - datetime.timedelta(hours=1), 0)
    with context.store.writing() as work:
        # The pass before ended at its deadline, with a log that it had read in part.
        work.settings.put(ended_jobs.KEY, ended_jobs._progress_text([(ENDED, 2), before]))
    for _ in range(3):
        ended_jobs.step(context)
    assert reader.calls == [[1, 2]]


def test_a_pass_without_ended_jobs_stores_nothing(
    context: contexts.Context, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_jobs.step(context)
    monkeypatch.setattr(stores.Store, "writing", lambda *arguments: pytest.fail("it writes"))
    ended_jobs.step(context)
