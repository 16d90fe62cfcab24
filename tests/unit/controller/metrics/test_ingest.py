"""Database queries of a log ingest, for any number of jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from db import unit_of_work
from orchestrator import errors, jobs, metrics, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts, stores
from orchestrator.logs import reading
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    context = made(tmp_path, database_file)
    with context.store:
        yield context


@pytest.fixture
def any_context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    """A context with SQLite and with PostgreSQL."""
    context = made(tmp_path, database_url)
    with context.store:
        yield context


def made(tmp_path: Path, database: str | Path) -> contexts.Context:
    return builders.make_context(tmp_path, stores.Store(database))


def add(context: contexts.Context, number: int, spec: str | None = None) -> jobs.Job:
    token = f"abcd{number:08}"
    folder = context.folder / token
    folder.mkdir()
    line = f"Epoch Throughput: {number}.5 images/second\n"
    (folder / "log").write_text("### orchestrator\n" + line)
    olivia = jobs.JobSpec(name="demo", metrics=jobs.Metrics(patterns=("olivia",)))
    record = builders.make_submission(
        1,
        NOW,
        token=token,
        script="x" * 100000,
        spec=spec or specs.to_json(olivia),
        run_dir=str(folder),
    )
    # Of a job by hand every line counts, with no banner above.
    by_hand = {"tracked_name": "demo", "job_id": str(number), "stdout_path": str(folder / "log")}
    with context.store.writing() as work:
        return work.jobs.add_submission(record, state=jobs.JobState.RUNNING, **by_hand)[0]


def test_number_of_statements_is_independent_of_the_number_of_jobs(
    any_context: contexts.Context,
) -> None:
    context = any_context
    asked: list[str] = []

    def listen(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.append(statement)

    counts = []
    first, *others = [add(context, number) for number in range(1, 11)]
    assert ingest.ingest(context, [first, *others]).stored == 10
    sa.event.listen(sa.Engine, "before_cursor_execute", listen)
    try:
        for expected in ([first], [first, *others]):
            asked.clear()
            assert ingest.ingest(context, expected).stored == 0
            counts.append(len(asked))
            assert "script" not in " ".join(asked)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", listen)
        context.store.close()
    assert counts[0] == counts[1] > 0


def test_an_unreadable_spec_does_not_stop_other_jobs(context: contexts.Context) -> None:
    messages: list[str] = []
    speaking = context.with_reporter(builders.messages_to(messages))
    unread, other = add(context, 1, spec='{"of_later": 1}'), add(context, 2)
    assert ingest.ingest(speaking, [unread, other]).stored == 1
    (sentence,) = messages
    assert sentence.startswith(f"@{unread.row}: its metrics were not read: stored spec: ")
    with pytest.raises(errors.SpecError):
        ingest.ingest(context, [unread])


class Crash(Exception):
    """The process ended."""


class Interrupted(stores.Store):
    """A store of a process that others come before, or that ends in the midst of a write."""

    def __init__(self, path: Path, happens: Iterator[str], meanwhile: Callable[[], object]) -> None:
        super().__init__(path)
        self._happens, self._meanwhile = happens, meanwhile

    @contextlib.contextmanager
    def writing(self, **options: Any) -> Iterator[unit_of_work.UnitOfWork]:
        what = next(self._happens, "")
        if what == "other":
            self._meanwhile()
        with super().writing(**options) as work:
            yield work
            if what == "crash":
                raise Crash


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crashes")


NUMBERS = itertools.count(100)


def part(context: contexts.Context, job: jobs.Job, size_bytes: int) -> ingest.Ingested:
    """Read one part of each file."""
    over = deadlines.Deadline(at=0.0)
    with mock.patch.object(ingest, "FIRST_PART_BYTES", size_bytes):
        return ingest.ingest(context, [job], deadline=over)


@settings(max_examples=8)
@given(
    parts=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    happens=st.lists(st.sampled_from(["", "crash", "other"]), max_size=12),
    limit=st.sampled_from([40, 2**20]),
)
def test_each_metric_once_whatever_happens(
    places: Path, parts: list[int], happens: list[str], limit: int
) -> None:
    plain = made(places, places / "x.db")
    job = add(plain, number := next(NUMBERS))
    log = places / f"abcd{number:08}" / "log"
    text = b"".join(b"Epoch Throughput: %d.5 images/second\r\n" % each for each in range(9))
    text = log.read_bytes() + text
    log.write_bytes(b"")
    other = functools.partial(part, plain, job, limit)
    store = Interrupted(places / "x.db", iter(happens), other)
    context = dataclasses.replace(plain, store=store)
    done = 0
    for end in [*parts, len(text)]:
        with log.open("ab") as file:
            file.write(text[done : max(done, end)])
        done = max(done, end)
        with contextlib.suppress(Crash):
            part(context, job, limit)
    while part(plain, job, limit).unread:
        pass
    with plain.store.reading() as work:
        stored_metrics = work.metrics.by_job(metrics.MetricQuery(job_rows=[job.row]))[job.row]
    assert [(metric.value, metric.line) for metric in stored_metrics] == [
        (number + 0.5, 2),
        *((each + 0.5, each + 3) for each in range(9)),
    ]
    store.close()
    plain.store.close()


class Clock:
    """A clock that advances by one second per part of a file that is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        read = reading.read

        def slow(*args: Any, **options: Any) -> reading.Chunk:
            self.now += 1.0
            return read(*args, **options)

        monkeypatch.setattr(reading, "read", slow)

    def deadline(self, seconds: float) -> deadlines.Deadline:
        return deadlines.Deadline(at=self.now + seconds, clock=lambda: self.now)


def test_jobs_share_the_time_and_the_next_call_continues(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "FIRST_PART_BYTES", 4096)
    expected = [add(context, number) for number in (1, 2, 3)]
    line = b"Epoch Throughput: 1.5 images/second\n"
    counts = (6_000, 250, 190)
    for job, count in zip(expected, counts, strict=True):
        Path(job.stdout_path or "").write_bytes(line * count)
    clock = Clock(monkeypatch)
    first = ingest.ingest(context, expected, deadline=clock.deadline(15), first=0)
    # The first job has a third of the time for its log and metrics.jsonl; each got its parts.
    assert set(first.unread) == {expected[0].row} and clock.now <= 15
    assert first.report(15, "later") == "read 0.0 of 0.2 MiB of 1's log in 15 s; later"
    assert first.stored > 440
    looks = [first]
    while looks[-1].unread:
        looks.append(ingest.ingest(context, expected, deadline=clock.deadline(15)))
    assert sum(look.stored for look in looks) == sum(counts)
    assert looks[-1].report(15, "later") == ""
    context.store.close()


def test_jobs_without_time_are_reported_as_unread(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [add(context, number) for number in (1, 2, 3)]
    clock = Clock(monkeypatch)
    for first in (1, 2, 0):
        # One file uses up the time. Each job has a log and a metrics.jsonl, which does not exist.
        done = ingest.ingest(context, expected, deadline=clock.deadline(1), first=first)
        assert done.stored == 1
        left = {1: 2, 2: 1, 0: 0}[first]
        assert len(done.unread) == left
    context.store.close()


def test_values_that_the_database_cannot_store(any_context: contexts.Context) -> None:
    context = any_context
    job = add(context, 1)
    (Path(job.run_dir) / "metrics.jsonl").write_text(
        '{"name": "loss", "value": 1, "time": "0999-01-01T00:00:00Z", "unit": "\\ud800"}\n'
        '{"name": "loss", "value": 2, "time": "0001-01-01T00:00:00+05:00"}\n'
    )
    assert ingest.ingest(context, [job]).stored == 3
    with context.store.reading() as work:
        query = metrics.MetricQuery(job_rows=[job.row], names=["loss"])
        stored_metrics = work.metrics.by_job(query)[job.row]
    context.store.close()
    year = datetime.datetime(999, 1, 1, tzinfo=datetime.UTC)
    assert [(metric.value, metric.unit, metric.time) for metric in stored_metrics] == [
        (1, "", year),
        (2, "", None),
    ]


def test_files_of_an_array_task() -> None:
    task = builders.make_job(
        run_dir="/r",
        stdout_path="/r/7_4.out",
        stderr_path="/r/7_4.err",
        array_job_id="7",
        array_task_id=4,
    )
    assert ingest.files_of(task) == ["/r/7_4.out", "/r/7_4.err", "/r/metrics.4.jsonl"]
    assert ingest.files_of(builders.make_job(run_dir="/r")) == ["/r/metrics.jsonl"]
