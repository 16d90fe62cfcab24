"""Sweeps in the store: points are read back unchanged, and each has one job at a time."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from orchestrator import config, errors, jobs, sweeps
from orchestrator.controller.session import stores
from orchestrator.controller.sweeps import queries
from orchestrator.toml import documents
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
PROFILE = config.Profile(name="lab", partitions={"gpu": config.Partition(gpus_per_node=4)})
TEXT = """\
[job]
name = "wrn"
partition = "gpu"
time_limit = "02:00:00"
[launch]
module = "trainers.train"
[args]
batch-size = 1024
base_lr = 0.1
[sweep]
kind = "strong"
gpus = [2, 8]
repeats = 2
max_running = 3
axes.args.precision = ["bf16", "fp32"]
axes.args.milestones = [[30, 60]]
"""


def expanded(text: str = TEXT) -> sweeps.Sweep:
    document, problems = documents.parse(text, "wrn.toml")
    return sweeps.expand(document, PROFILE, problems)


def add(store: stores.Store, sweep: sweeps.Sweep) -> sweeps.StoredSweep:
    with store.writing() as work:
        return work.sweeps.add(
            sweep,
            profile=PROFILE.name,
            cluster="lab",
            scheduler="slurm",
            source="wrn.toml",
            folder="/home/a",
            created_at=NOW,
        )


def submit(
    store: stores.Store, row: int, moves: dict[int, int | None], **fields: object
) -> dict[int, int]:
    """Store an array for these points, and give it to them; returns rows by point."""
    with store.writing() as work:
        token = f"abcd{len(work.jobs.find(jobs.JobQuery())):08}"
        record = builders.make_submission(
            1, NOW, token=token, name="wrn", run_dir=f"/runs/wrn.{token}"
        )
        added = work.jobs.add_submission(
            record, array_tasks=range(len(moves)), sweep="wrn", **fields
        )
        new = {number: job.row for number, job in zip(moves, added, strict=True)}
        stored = sweeps.points_of(work.sweeps.points(row))
        points = [
            dataclasses.replace(stored[number - 1], job=None if old is None else work.jobs.get(old))
            for number, old in moves.items()
        ]
        if not work.sweeps.assign_jobs(row, points, [*new.values()]):
            raise errors.ConflictError("another process was faster")
        return new


def unnumbered(points: list[sweeps.Point]) -> list[sweeps.Point]:
    return [dataclasses.replace(point, number=0) for point in points]


def test_stored_sweep_is_read_back(store: stores.Store) -> None:
    sweep = expanded()
    stored = add(store, sweep)
    with store.reading() as work:
        assert work.sweeps.newest(name="wrn") == [stored]
        assert work.sweeps.newest(name="other") == []
        assert work.sweeps.get(stored.row) == stored
        points = work.sweeps.points(stored.row)
        assert work.sweeps.document(stored.row) == sweep.document
        assert work.sweeps.totals([stored.row]) == {stored.row: sweeps.total(sweep.points)}
    assert (stored.name, stored.kind, stored.state) == ("wrn", "strong", "open")
    assert (stored.max_running, stored.profile) == (3, "lab")
    assert [point.number for point in points] == [*range(1, 9)]
    assert unnumbered(sweeps.points_of(points)) == [*sweep.points]
    assert sweep.points[-1].spec.args == {
        "base_lr": 0.1,
        "precision": "fp32",
        "milestones": (30, 60),
        "batch_size": 1024,
    }


def test_a_baseline_that_failed_and_may_go_on_has_not_failed(store: stores.Store) -> None:
    stored = add(store, expanded(TEXT.replace("[sweep]", "[sweep]\nbaseline_first = true")))
    failed = {"job_id": "7", "state": jobs.JobState.FAILED}
    new = submit(store, stored.row, dict.fromkeys(range(1, 9)), recovers=True, **failed)

    def prerequisites() -> sweeps.Prerequisites:
        with store.reading() as work:
            return queries.prerequisites_of(work, new[8], 1)

    waits = prerequisites()
    assert waits.unsent > 0 and waits.failed == 0
    with store.writing() as work:
        for row in new.values():
            work.jobs.change(row, {"recovers": None})
    assert (prerequisites().unsent, prerequisites().failed) == (0, waits.unsent)
    with store.writing() as work:
        for row in new.values():
            lost = {"state": jobs.JobState.RUNNING, "missing_since": stored.created_at}
            work.jobs.change(row, lost)
    assert prerequisites() == waits


def test_points_that_are_added_share_a_shape_of_the_same_job(store: stores.Store) -> None:
    stored = add(store, expanded())
    extra = expanded(TEXT.replace("[2, 8]", "[8, 16]").replace("base_lr = 0.1", "base_lr = 0.2"))
    new = [point for point in extra.points if point.settings["gpus"] == 16]
    with store.writing() as work:
        work.sweeps.add_points(stored.row, new)
    with store.reading() as work:
        points = work.sweeps.points(stored.row)
        assert work.sweeps.totals([stored.row])[stored.row].gpu_hours == 4 * 2 * (2 + 8 + 16)
    assert [point.number for point in points] == [*range(1, 13)]
    assert {point.spec.args["base_lr"] for point in sweeps.points_of(points[:8])} == {0.1}
    assert unnumbered(sweeps.points_of(points[8:])) == new
    # A point is there once.
    with pytest.raises(errors.DatabaseError, match=r"(?i)unique"), store.writing() as work:
        work.sweeps.add_points(stored.row, new[:1])


def test_a_point_has_one_job_at_a_time(store: stores.Store) -> None:
    stored = add(store, expanded())
    first = submit(store, stored.row, {1: None, 2: None})
    # If a second process plans the same points, none of its jobs are stored.
    with pytest.raises(errors.ConflictError):
        submit(store, stored.row, {2: None, 3: None})
    again = submit(store, stored.row, {2: first[2]})
    with pytest.raises(errors.ConflictError):
        submit(store, stored.row, {2: first[2]})
    with store.reading() as work:
        assert [job.row for job in work.sweeps.jobs(stored.row)] == [first[1], again[2]]
        assert len(work.jobs.find(jobs.JobQuery())) == 3
        second = work.sweeps.points(stored.row)[1]
        assert second.number == 2 and second.job is not None and second.job.row == again[2]


def test_points_are_counted_by_state(store: stores.Store) -> None:
    stored = add(store, expanded())
    state = jobs.JobState
    submit(store, stored.row, {1: None, 3: None}, state=state.FAILED, exit_code=7, exit_signal=0)
    submit(store, stored.row, {2: None}, state=state.PENDING, reason="Priority")
    submit(store, stored.row, {5: None}, state=state.FAILED, recovers=True)
    submit(store, stored.row, {4: None}, state=state.NOT_SUBMITTED, resend_at=NOW)
    with store.reading() as work:
        groups = work.sweeps.groups([stored.row])
    blank = sweeps.PointGroup(
        points=1,
        state=None,
        reason=None,
        cause=None,
        exit_code=None,
        exit_signal=None,
        is_deferred=False,
    )
    change = dataclasses.replace
    assert groups == {
        stored.row: [
            change(blank, points=2, state=state.FAILED, exit_code=7, exit_signal=0),
            change(blank, state=state.PENDING, reason="Priority"),
            change(blank, state=state.NOT_SUBMITTED, is_deferred=True),
            change(blank, state=state.FAILED, recovers=True),
            change(blank, points=3),
        ]
    }
    # Refused points can be resumed, and a rule may retry the failed one.
    assert [group.is_over for group in groups[stored.row]] == [True, False, False, False, False]


def test_a_sweep_is_cancelled_once(store: stores.Store) -> None:
    stored = add(store, expanded())
    with store.writing() as work:
        assert work.sweeps.set_state(stored, "cancelled")
        assert not work.sweeps.set_state(stored, "cancelled")
        stored_sweep = work.sweeps.get(stored.row)
    assert stored_sweep == dataclasses.replace(stored, state="cancelled")
