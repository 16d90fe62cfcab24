"""Lists of jobs: folded, sorted and counted in the database; marks of changes."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from orchestrator import jobs, metrics
from orchestrator.controller.session import stores
from orchestrator.jobs import JobState
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
ALL = jobs.JobQuery(limit=10)


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    with stores.Store(database_url) as store:
        with store.writing() as work:
            for number, name in enumerate(["beta", "alpha"], 1):
                work.jobs.add_submission(
                    builders.make_submission(number, NOW, name=name),
                    labels=[f"team={name}_100%"],
                    state=JobState.RUNNING,
                    started_at=NOW if number == 1 else None,
                    job_id=str(number),
                    node_list=f"n{number}",
                )
            tasks = work.jobs.add_submission(
                builders.make_submission(3, NOW, name="many"),
                array_tasks=range(6),
                state=JobState.PENDING,
                array_job_id="3",
            )
            failed = [(tasks[number].row, {"state": JobState.FAILED}, None) for number in (1, 3)]
            work.jobs.change_many(failed)
        yield store


def names(groups: list[jobs.JobGroup]) -> list[tuple[str, str, int, bool]]:
    return [
        (group.first.name, group.first.state.value, group.count, group.is_range) for group in groups
    ]


def test_tasks_with_the_same_state_are_folded(store: stores.Store) -> None:
    with store.reading() as work:
        lists = work.job_lists
        groups = lists.groups(ALL, order="submitted", descending=True, offset=0)
        assert names(groups) == [
            ("many", "PENDING", 4, False),
            ("many", "FAILED", 2, False),
            ("alpha", "RUNNING", 1, False),
            ("beta", "RUNNING", 1, False),
        ]
        assert (groups[0].first_task, groups[0].last_task) == (0, 5)
        assert groups[0].last_row - groups[0].first.row == 5
        pending = jobs.JobQuery(states=["PENDING"], words=["MANY"], limit=1)
        assert names(lists.groups(pending, order="name", descending=False, offset=0)) == [
            ("many", "PENDING", 4, False)
        ]
        assert lists.groups(pending, order="name", descending=False, offset=1) == []
        assert lists.counts(pending) == {"PENDING": 4, "FAILED": 2}
        assert (lists.number(ALL, is_folded=True), lists.number(ALL, is_folded=False)) == (3, 8)
        tasks = lists.tasks(pending, order="submitted", descending=False, offset=0)
        assert [(each.first.array_task_id, each.count) for each in tasks] == [(0, 1)]


@pytest.mark.parametrize("descending", [False, True])
def test_order(store: stores.Store, descending: bool) -> None:
    with store.reading() as work:
        by_name = work.job_lists.groups(ALL, order="name", descending=descending, offset=0)
        started = work.job_lists.groups(ALL, order="started", descending=descending, offset=0)
    found = list(dict.fromkeys(group.first.name for group in by_name))
    assert found == sorted(found, reverse=descending)
    # Jobs without the value come last in both directions.
    assert started[0].first.name == "beta"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("ALPH", ["alpha"]),
        ("@1", ["beta"]),
        ("2", ["alpha"]),
        ("n1", ["beta"]),
        ("_100%", ["alpha", "beta"]),
        ("100_", []),
        ("@99999999999999999999", []),
        ("'\"\\", []),
    ],
)
def test_words(store: stores.Store, word: str, found: list[str]) -> None:
    query = jobs.JobQuery(words=[word], limit=10)
    with store.reading() as work:
        groups = work.job_lists.groups(query, order="name", descending=False, offset=0)
    assert [group.first.name for group in groups] == found


def test_marks_grow_with_changes(store: stores.Store) -> None:
    with store.reading() as work:
        first, everything = work.changes.of_jobs([1, 99]), work.changes.of_all()
    assert list(first) == [1]
    assert first[1].metric == 0
    line = metrics.ParsedLine.of(
        jobs.Metric(name="loss", value=1.0, source="log:demo", path="", line=1)
    )
    with store.writing() as work:
        work.metrics.add(1, [line])
        event = jobs.JobEvent(at=NOW, kind="note", source="user", detail="x")
        work.events.add(1, event)
        work.jobs.change(1, {"state": JobState.COMPLETED})
    with store.reading() as work:
        second = work.changes.of_jobs([1])[1]
        assert work.changes.of_all() != everything
        query = metrics.MetricQuery(job_rows=[1])
        newest = work.metrics.ids(query)[1][-1]
    assert second.version > first[1].version
    assert second.event > first[1].event
    assert second.metric > newest
