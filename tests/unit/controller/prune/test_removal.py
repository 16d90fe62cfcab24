"""Rows go in transactions of limited duration, and an interrupted deletion is continued."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from db.stores import prune as prune_store
from orchestrator import jobs, prune
from orchestrator.controller.prune import plan, removal
from orchestrator.controller.session import contexts, stores
from orchestrator.prune import Kind
from tests import builders, pruning

ALL = jobs.JobQuery(limit=None)


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    with stores.Store(database_url) as store:
        made = builders.make_context(tmp_path, store, now=pruning.NOW)
        yield builders.with_clock(made, sleep=lambda seconds: None)


def remove(
    context: contexts.Context, kind: Kind, after_transaction: Callable[[float], None] | None = None
) -> list[str]:
    """Prune all that may go, with one step in each transaction; return the problems."""
    planned = plan.make(context, plan.Selection(query=ALL, kinds=frozenset({kind})))
    seconds = itertools.count()
    slow = builders.with_clock(
        context,
        boot_seconds=lambda: float(next(seconds)),
        sleep=after_transaction or context.clock.sleep,
    )
    return removal.carry_out(slow, planned).problems


def test_a_transaction_begins_nothing_after_its_time(context: contexts.Context) -> None:
    now = 0.0
    pauses: list[float] = []
    steps: list[int] = []
    clock = builders.with_clock(context, boot_seconds=lambda: now, sleep=pauses.append)
    seconds = iter([0.4, 0.02, 0.02, 0.02, 0.01])

    def step(work: object) -> bool:
        nonlocal now
        took = next(seconds)
        now += took
        steps[-1] += 1
        return took != 0.01

    removal._in_batches(clock, step, check=lambda work: steps.append(0))
    assert steps == [1, 3, 1]
    assert pauses == [0.05, 0.05, pytest.approx(0.01)]


class Killed(BaseException):
    pass


def test_an_interrupted_deletion_of_rows_is_continued(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_JOBS_AT_ONCE", 1)
    monkeypatch.setattr(removal, "_ROWS_AT_ONCE", 20)
    world = pruning.World(context)
    world.add("other", goes=False, state=jobs.JobState.RUNNING)
    world.remember()
    # For each of 3 jobs a transaction claims it, one marks it, and 2 delete metrics and history; 1
    # deletes the sweep; for each job one deletes it.
    for killed_after in range(1, 16):
        name = f"done{killed_after}"
        done = [world.add("done", goes=True, sweep=name)[0] for _ in range(3)]
        world.add_sweep(name, done)
        left = [killed_after]

        def kill(seconds: float, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        with pytest.raises(Killed):
            remove(context, Kind.ROWS, kill)
        assert world.damage() == []
        with context.store.reading() as work:
            marks = work.prune.marks(work.prune.marked_for_deletion()).values()
        assert {mark.detail for mark in marks} <= {prune.ROWS}
        # Once all are marked, each call continues.
        assert remove(context, Kind.CHECKPOINTS) == []
        if killed_after < 6:
            assert len(world.remaining()) == 4
            assert remove(context, Kind.ROWS) == []
        assert world.damage() == []
        assert len(world.remaining()) == 1
        with context.store.reading() as work:
            assert work.sweeps.find(name) is None


def test_a_sweep_goes_with_its_last_points(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_ROWS_AT_ONCE", 2)
    world = pruning.World(context)
    (job,) = world.add("done", goes=True, sweep="cancelled")
    sweep = world.add_sweep("cancelled", [job, None, None])
    with context.store.writing() as work:
        assert work.prune.delete_groups([sweep], [], 2)
        # The job still leads to its sweep.
        assert work.prune.groups_of([job.row]) == ({sweep}, set())
        assert not work.prune.delete_groups([sweep], [], 2)
        assert work.sweeps.find("cancelled") is None


def test_a_job_on_which_one_depends_meanwhile_stays(context: contexts.Context) -> None:
    world = pruning.World(context)
    (job,) = world.add("plain", goes=True)
    transactions = itertools.count(1)

    def depend(seconds: float) -> None:
        # The first claims the job, and the second marks it.
        if next(transactions) == 2:
            (dependent,) = world.add("dependent", goes=False, state=jobs.JobState.PENDING)
            world.depend(dependent, on_job=job.row)

    problem = f"{job.job_id}: changed by another process meanwhile, and kept"
    assert remove(context, Kind.ROWS, depend) == [problem]
    assert len(world.remaining()) == 2
    assert [*context.store.check()] == []


def test_environments_that_no_attempt_names_go_with_the_rows(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = pruning.World(context)
    (old,) = world.add("old", goes=True)
    (live,) = world.add("live", goes=False, state=jobs.JobState.RUNNING)
    with context.store.writing() as work:
        work.environments.put(
            [
                (old.row, 0, ("a" * 64, "{}"), "{}"),
                (old.row, 1, ("b" * 64, "{}"), "{}"),
                (live.row, 0, ("b" * 64, "{}"), "{}"),
            ]
        )

    def stored() -> set[str]:
        with context.store.reading() as work:
            found = work.environments.documents(["a" * 64, "b" * 64])
        return {sha256[0] for sha256 in found}

    def kill(*arguments: object) -> int:
        raise Killed

    assert remove(context, Kind.RUN_FOLDER) == []
    assert stored() == {"a", "b"}
    # Killed when the rows are gone: the next call removes them, whatever it is asked for.
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(prune_store.PruneStore, "delete_environments", kill)
        remove(context, Kind.ROWS)
    assert (stored(), len(world.remaining())) == ({"a", "b"}, 1)
    assert remove(context, Kind.CHECKPOINTS) == []
    assert stored() == {"b"}
