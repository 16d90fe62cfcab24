"""Environments in the store: each once, for any number of attempts."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from db.tables.jobs import ENVIRONMENTS
from orchestrator import environments, jobs
from orchestrator.controller.session import stores
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
WHERE = environments.to_json(environments.Placement(host="n1"))


def environment(driver: str) -> tuple[str, str]:
    document = environments.to_json(environments.Environment(driver=driver))
    return environments.sha256(document), document


def add(store: stores.Store, number: int, *, attempts: int = 1, **fields: Any) -> int:
    """Store a job that has started; return its row."""
    fields = {"state": jobs.JobState.RUNNING, "started_at": NOW, **fields}
    with store.writing() as work:
        (job,) = work.jobs.add_submission(builders.make_submission(number, NOW), **fields)
        work.attempts.put(
            (job.row, jobs.Attempt(number=each, state=fields["state"], started_at=NOW))
            for each in range(attempts)
        )
    return job.row


def unread(store: stores.Store, cluster: str = "lab", limit: int = 10) -> list[tuple[int, int]]:
    with store.reading() as work:
        found = work.environments.unread(cluster, NOW - HOUR, limit)
    return [(each.job_row, each.number) for each in found]


def test_equal_environments_are_stored_once(store: stores.Store) -> None:
    rows = [add(store, number) for number in range(3)]
    with store.writing() as work:
        work.environments.put((row, 0, environment("550.1"), WHERE) for row in rows[:2])
    with store.writing() as work:
        work.environments.put(
            [(rows[1], 0, environment("550.1"), WHERE), (rows[2], 0, environment("570.2"), WHERE)]
        )
    with store.reading() as work:
        documents = [environment("550.1")[1], environment("570.2")[1]]
        assert work.environments.of_job(rows[1]) == {0: (documents[0], WHERE)}
        assert work.environments.of_job(rows[2]) == {0: (documents[1], WHERE)}
        hashes = [environment(version)[0] for version in ("550.1", "550.1", "570.2")]
        newest = work.environments.of_newest_attempts(rows)
        assert newest == dict(zip(rows, hashes, strict=True))
        known = dict(environment(version) for version in ("550.1", "570.2"))
        assert work.environments.documents(set(hashes)) == known
        count = sa.select(sa.func.count()).select_from(ENVIRONMENTS)
        assert work.environments._connection.scalar(count) == 2
    assert unread(store) == []
    assert store.check() == []


def test_the_first_record_of_an_attempt_stays(store: stores.Store) -> None:
    row = add(store, 1)
    for stored in (None, environment("550.1")):
        with store.writing() as work:
            work.environments.put([(row, 0, stored, WHERE)])
    with store.reading() as work:
        assert work.environments.of_job(row) == {0: (None, WHERE)}
        assert work.environments.of_newest_attempts([row]) == {}
    assert unread(store) == []


def test_which_attempts_are_unread(store: stores.Store) -> None:
    running = add(store, 1, attempts=2)
    ended = {"state": jobs.JobState.COMPLETED, "settled": True}
    recent = add(store, 2, **ended, ended_at=NOW)
    add(store, 3, **ended, ended_at=NOW - 2 * HOUR)
    add(store, 4, tracked_name="other")
    with store.writing() as work:
        (pending,) = work.jobs.add_submission(
            builders.make_submission(5, NOW), state=jobs.JobState.PENDING
        )
        waiting = jobs.Attempt(number=0, state=jobs.JobState.PENDING)
        work.attempts.put([(pending.row, waiting)])
    assert unread(store) == [(recent, 0), (running, 1), (running, 0)]
    assert unread(store, limit=2) == [(recent, 0), (running, 1)]
    assert unread(store, cluster="other") == []
    with store.writing() as work:
        work.environments.put([(running, 0, None, WHERE)])
    assert unread(store) == [(recent, 0), (running, 1)]
    with store.reading() as work:
        found = work.environments.unread("lab", NOW - HOUR, 1)
    assert found == [
        jobs.UnreadEnvironment(
            job_row=recent,
            number=0,
            started_at=NOW,
            ended_at=None,
            array_task=0,
            run_dir="/runs/demo.abcd00000002",
        )
    ]


def test_a_changed_document_is_found(store: stores.Store) -> None:
    row = add(store, 1)
    sha256, document = environment("550.1")
    with store.writing() as work:
        work.environments.put([(row, 0, (sha256, document.replace("550.1", "550.2")), WHERE)])
    (finding,) = store.check()
    assert str(finding) == f"environments row @1: sha256 is {sha256!r}, not that of the document"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"python": 3, "packages": [], "gpus": {}, "modules": "x"}',
        '{"packages": {"a": null}, "gpus": [3], "unknown": 1, "gpus_on_host": true}',
    ],
)
def test_values_of_other_types_are_left_out(text: str) -> None:
    assert environments.from_json(environments.Environment, text) == environments.Environment()
    assert environments.from_json(environments.Placement, text) == environments.Placement()
    assert dataclasses.asdict(environments.from_json(environments.Environment, text))
