"""Submissions and jobs in the store, with their attempts and events."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.session import queries, stores

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SECOND = datetime.timedelta(seconds=1)


#: For what SQLite alone has.
on_a_file = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def submission(token: str = "abcd00000001", **changes: object) -> jobs.Submission:
    record = jobs.Submission(
        token=token,
        cluster="lab",
        scheduler="slurm",
        name="digits",
        script="#!/bin/bash\n",
        spec='{"name": "digits"}',
        run_dir=f"/runs/digits.{token}",
        provenance="{}",
        created_at=NOW,
    )
    return dataclasses.replace(record, **changes)  # type: ignore[arg-type]


def add(store: stores.Store, token: str = "abcd00000001", **changes: object) -> jobs.Job:
    """Store a job; `changes` are fields of its submission or of the job."""
    names = {field.name for field in dataclasses.fields(jobs.Submission)}
    ours = {name: value for name, value in changes.items() if name in names}
    rest = {name: value for name, value in changes.items() if name not in names}
    with store.writing() as work:
        return work.jobs.add_submission(submission(token, **ours), **rest)[0]  # type: ignore[arg-type]


def test_a_job_is_read_back_unchanged(store: stores.Store) -> None:
    submitter = jobs.Submitter(host="login1", boot_id="b-1", pid=4711, start_ticks=2**40)
    east = datetime.timezone(datetime.timedelta(hours=9))
    with store.writing(durable=True) as work:
        (job,) = work.jobs.add_submission(
            submission(created_at=NOW.astimezone(east)),
            labels=("team=vision", 'odd "label", ü'),
            submitter=submitter,
            partition="accel",
            nodes=2,
            time_limit_seconds=10**10,
        )
    assert job == jobs.Job(
        row=1,
        token="abcd00000001",
        cluster="lab",
        scheduler="slurm",
        name="digits",
        state=jobs.JobState.SUBMITTING,
        run_dir="/runs/digits.abcd00000001",
        created_at=NOW,
        labels=("team=vision", 'odd "label", ü'),
        submitter=submitter,
        partition="accel",
        nodes=2,
        time_limit_seconds=10**10,
    )
    with store.reading() as work:
        assert work.jobs.get(1) == job
        assert work.jobs.live("lab") == [job]
        assert work.jobs.live("other") == []
        assert work.jobs.submission("abcd00000001") == submission()
        assert work.jobs.submission_of(1) == submission()
        assert work.jobs.get(2) is None


def test_every_field_of_a_job_can_be_changed(store: stores.Store) -> None:
    job = add(store)
    fixed = {"row", "token", "cluster", "scheduler", "name", "run_dir", "created_at"}
    # Told by the controller; counted by the database.
    fixed |= {"stale_since", "version"}
    samples: dict[str, object] = {
        "state": jobs.JobState.RUNNING,
        "labels": ("a",),
        "alerts": (jobs.Alert(rule="stalled", attempt=0, since=NOW, detail="no new line"),),
        "settled": True,
        "recovers": True,
        "submitter": jobs.Submitter(host="h", boot_id="b", pid=1, start_ticks=2),
    }
    for field in dataclasses.fields(jobs.Job):
        kind = str(field.type)
        if field.name in fixed or field.name in samples:
            continue
        samples[field.name] = NOW if "datetime" in kind else 7 if "int" in kind else "text"
    with store.writing() as work:
        assert work.jobs.change(job.row, samples)
        expected = dataclasses.replace(job, version=1, **samples)  # type: ignore[arg-type]
        assert work.jobs.get(job.row) == expected
        assert work.jobs.change(job.row, {"submitter": None, "reason": None})
        changed = work.jobs.get(job.row)
    assert changed is not None and changed.submitter is None and changed.reason is None
    for name in sorted(fixed):
        with pytest.raises(ValueError, match=rf"cannot be changed: \['{name}'\]"):
            with store.writing() as work:
                work.jobs.change(job.row, {name: "x"})


def test_a_change_from_an_older_view_is_refused(store: stores.Store) -> None:
    first = add(store)

    def change(version: int | None) -> bool:
        with store.writing() as work:
            return work.jobs.change(first.row, {"reason": str(version)}, version=version)

    assert change(first.version)
    assert not change(first.version), "somebody else was first"
    assert change(None)
    assert change(first.version + 2)
    with store.writing() as work:
        assert not work.jobs.change(first.row + 1, {"cause": "x"}, version=0)
        job = work.jobs.get(first.row)
    assert job is not None and (job.reason, job.version) == ("2", first.version + 3)


def test_jobs_seen_unchanged(store: stores.Store) -> None:
    job = add(store)
    for seconds, kept in ((2, 2), (1, 2), (3, 3)):
        with store.writing() as work:
            work.jobs.confirm([job.row], NOW + seconds * SECOND)
            seen = work.jobs.get(job.row)
        assert seen is not None
        assert (seen.observed_at, seen.version) == (NOW + kept * SECOND, job.version)


def test_token_is_stored_once(store: stores.Store) -> None:
    add(store)
    with pytest.raises(errors.DatabaseError, match=r"(?i)unique constraint .*submissions.token"):
        add(store)
    with store.reading() as work:
        assert len(work.jobs.find(jobs.JobQuery())) == 1


def test_row_numbers_are_never_given_twice(store: stores.Store) -> None:
    row = add(store).row
    with store._database.writing() as db:
        db.execute(sa.text("DELETE FROM submissions"))
    assert add(store).row == row + 1


def test_array(store: stores.Store) -> None:
    with store.writing() as work:
        tasks = work.jobs.add_submission(submission(), array_tasks=(0, 2, 5), array_job_id="123")
        for job in tasks:
            work.jobs.change(job.row, {"job_id": f"123_{job.array_task_id}"})
    assert [(job.array_task_id, job.array_job_id) for job in tasks] == [
        (0, "123"),
        (2, "123"),
        (5, "123"),
    ]
    with store.reading() as work:
        assert len(work.jobs.of_submissions(["abcd00000001", "missing"])) == 3
        assert [job.array_task_id for job in queries.find_rows(work, "123")] == [5, 2, 0]
        assert [job.array_task_id for job in queries.find_rows(work, "digits")] == [5, 2, 0]
        assert [job.array_task_id for job in queries.find_rows(work, "123_2")] == [2]
        assert [job.array_task_id for job in queries.find_rows(work, "123_[0,5]")] == [5, 0]
        assert queries.find_rows(work, "123_[0,5%2]") == queries.find_rows(work, "123_[0,5]")
        assert (
            queries.find_rows(work, "123_[0,4]")
            == queries.find_rows(work, "123_[0-]")
            == queries.find_rows(work, "x_[0]")
            == []
        )
        whole = jobs.JobQuery(limit=1, whole_arrays=True)
        assert len(work.jobs.find(whole)) == 3
        assert len(work.jobs.find(jobs.JobQuery(limit=1))) == 1


def test_many_changes_at_once(store: stores.Store) -> None:
    with store.writing() as work:
        first, second, third = work.jobs.add_submission(submission(), array_tasks=range(3))
        assert work.jobs.change(second.row, {"reason": "newer"})
        changed = work.jobs.change_many(
            [
                (first.row, {"reason": "x", "ended_at": NOW}, first.version),
                (second.row, {"reason": "older"}, second.version),
                (third.row, {"state": jobs.JobState.RUNNING}, None),
                (999, {"reason": "nobody"}, 0),
            ]
        )
        assert changed == {first.row, third.row}
        after = work.jobs.of_submissions([first.token])
    assert [(job.reason, job.version) for job in after] == [("x", 1), ("newer", 1), (None, 1)]
    assert (after[0].ended_at, after[2].state) == (NOW, jobs.JobState.RUNNING)


def test_find(store: stores.Store) -> None:
    done, running = jobs.JobState.COMPLETED, jobs.JobState.RUNNING
    first = add(store, "abcd00000001", job_id="7", state=done)
    second = add(store, "abcd00000002", job_id="8", raw_job_id="8", state=running)
    here = {"scheduler": "local", "cluster": "local:lap", "job_id": "local-7", "raw_job_id": "7"}
    local = add(store, "abcd00000003", name="other", state=running, **here)
    reused = add(store, "abcd00000004", name="x", job_id="7", state=done)
    digits = add(store, "abcd00000005", name="8", job_id="9", state=done)

    def find(reference: str) -> list[jobs.Job]:
        with store.reading() as work:
            return queries.find_rows(work, reference)

    assert find("@1") == [first]
    assert find("local-7") == [local]
    assert find("7") == [reused], "Slurm gave the ID to a newer job; local-7 is another"
    assert find("8") == [second], "an ID comes before a name"
    assert find("9") == [digits]
    assert find("digits") == [second], "the newest"
    for nothing in ("@99", "@", "@x", "@²", "", "999", "nobody", "digits ", "Digits"):
        assert find(nothing) == []
    third = add(store, "abcd00000006", state=running)
    assert find("digits") == [third, second], "several live ones"
    with store.writing() as work:
        work.jobs.change(second.row, {"state": done})
    assert find("digits") == [third]
    elsewhere = add(store, "abcd00000007", cluster="sea", job_id="8", state=done)
    assert find("8") == [elsewhere, dataclasses.replace(second, state=done, version=1)]


def test_queries(store: stores.Store) -> None:
    old, new = NOW - 48 * HOUR, NOW - HOUR
    state = jobs.JobState
    add(store, "abcd00000001", created_at=old, settled=True, ended_at=old, state=state.FAILED)
    add(store, "abcd00000002", created_at=old, settled=True, ended_at=new, labels=("a", "b"))
    add(store, "abcd00000003", created_at=old, partition="accel", state=state.RUNNING)
    add(store, "abcd00000004", created_at=new, settled=True, name="b", labels=("b", ","))

    def rows(**query: object) -> list[int]:
        with store.reading() as work:
            result = work.jobs.find(jobs.JobQuery(**query))  # type: ignore[arg-type]
        return [job.row for job in result]

    assert rows() == [4, 3, 2, 1]
    assert rows(limit=2) == [4, 3]
    assert rows(rows=(1, 3)) == [3, 1]
    assert rows(live=True) == [3]
    assert rows(since=NOW - 2 * HOUR) == [4, 2]
    assert rows(live_or_since=NOW - 2 * HOUR) == [4, 3, 2]
    assert rows(names=("b", "c")) == [4]
    assert rows(labels=("b",)) == [4, 2]
    assert rows(labels=("b", "a")) == [2]
    assert rows(labels=(",",)) == [4]
    assert rows(labels=("A",)) == rows(labels=("%",)) == []
    assert rows(states=(state.RUNNING, state.FAILED)) == [3, 1]
    assert rows(partitions=("accel",), states=(state.FAILED,)) == []


@on_a_file
def test_frequent_queries_read_no_whole_table(store: stores.Store) -> None:
    plans: list[str] = []
    with store._database.reading() as connection:

        def explain(
            conn: object, cursor: Any, statement: str, parameters: Any, *rest: object
        ) -> None:
            if not statement.startswith("EXPLAIN"):
                cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans.extend(row[3] for row in cursor.fetchall())

        sa.event.listen(connection, "before_cursor_execute", explain)
        work = unit_of_work.UnitOfWork(connection)
        for query in (
            jobs.JobQuery(live_or_since=NOW),
            jobs.JobQuery(job_ids=("7",)),
            jobs.JobQuery(names=("digits",)),
            jobs.JobQuery(deferred=True),
            jobs.JobQuery(due=NOW, scheduler="slurm"),
        ):
            work.jobs.find(query)
        work.jobs.live("lab")
        work.changes.jobs_with_events(7)
        work.changes.jobs_with_metrics(7)
    assert plans
    scans = [plan for plan in plans if plan.startswith("SCAN")]
    # The list of values is read from JSON.
    assert [plan for plan in scans if "VIRTUAL TABLE" not in plan] == []


def test_attempts_and_events(store: stores.Store) -> None:
    row = add(store).row
    first = jobs.Attempt(number=0, state=jobs.JobState.RUNNING, started_at=NOW, node_list="n1")
    ended = dataclasses.replace(first, state=jobs.JobState.PREEMPTED, ended_at=NOW, exit_signal=15)
    second = jobs.Attempt(number=1, state=jobs.JobState.PENDING)
    event = jobs.JobEvent(at=NOW, kind="state", source="squeue", detail="seen")
    other = dataclasses.replace(event, state=jobs.JobState.RUNNING, raw_state="R", attempt=1)
    with store.writing() as work:
        for attempt in (second, first, ended):
            work.attempts.put([(row, attempt)])
        work.events.add(row, event)
        work.events.add(row, other)
    with store.reading() as work:
        assert work.attempts.of_job(row) == [ended, second]
        assert work.events.of_job(row) == [event, other]
        assert work.attempts.of_job(row + 1) == []


def test_check_and_upgrade(store: stores.Store) -> None:
    assert store.check() == []
    assert store.upgrade() == ("0011", "0011", None)
    assert store.describe().startswith(
        ("schema 0011, journal wal, local disk", "schema 0011, Post")
    )


@on_a_file
def test_orphans_are_found(store: stores.Store) -> None:
    with store._database._engine.connect() as connection:
        raw = connection.connection.cursor()
        raw.execute("PRAGMA foreign_keys=OFF")
        raw.execute("INSERT INTO attempts (job_row, number, state) VALUES (5, 0, 'RUNNING')")
        raw.close()
    assert list(map(str, store.check())) == [
        "attempts row 5, 0: job_row is 5, and jobs has no such row"
    ]


def test_more_values_than_bind_parameters(store: stores.Store) -> None:
    job = add(store)
    many = range(job.row, 300_000)
    with store.writing() as work:
        work.jobs.change(job.row, {"job_id": "7"})
    with store.reading() as work:
        for query in (
            jobs.JobQuery(rows=many, limit=None),
            jobs.JobQuery(job_ids=[str(item) for item in many], limit=None),
            jobs.JobQuery(names=["digits", *map(str, many)], limit=None),
        ):
            assert [item.row for item in work.jobs.find(query)] == [job.row]
        assert len(work.jobs.of_submissions([job.token, *map(str, many)])) == 1
