"""Rows go in transactions of limited duration, and an interrupted deletion is continued."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import jobs, prune
from orchestrator.controller.prune import plan, removal
from orchestrator.controller.session import contexts, stores
from orchestrator.prune import Kind
from tests import builders, pruning


@pytest.fixture
def context(tmp_path: Path, database_file: Path) -> Iterator[contexts.Context]:
    with stores.Store(database_file) as store:
        made = builders.make_context(tmp_path, store, now=pruning.NOW)
        yield builders.with_clock(made, sleep=lambda seconds: None)


def test_slow_transactions_become_smaller(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = builders.with_clock(context, sleep=pauses.append)
    limits: list[int] = []

    def delete(work: object, limit: int) -> int:
        limits.append(limit)
        return limit

    batches = removal._Batches(clock, {}, 1000)
    # Each transaction takes 0.4 s, then 0.01 s.
    for seconds in (0.4, 0.4, 0.01, 0.01):
        times = itertools.count(step=seconds)
        monkeypatch.setattr(time, "monotonic", lambda times=times: next(times))
        assert batches.run(delete)
    assert limits == [1000, 250, 62, 124]
    assert pauses == [0.05, 0.05, 0.01, 0.01]


@pytest.mark.parametrize("killed_after", range(1, 6))
def test_an_interrupted_deletion_of_rows_is_continued(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    world = pruning.World(context)
    done = [world.add("done", goes=True, sweep="done")[0] for _ in range(3)]
    world.add_sweep("done", done)
    world.add("other", goes=False)
    world.remember()
    monkeypatch.setattr(removal, "_FIRST_DETAILS", 40)
    monkeypatch.setattr(removal, "_FIRST_JOBS", 1)
    # Fast transactions would double the limit.
    times = itertools.count(step=removal._TRANSACTION_SECONDS)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    run, calls = removal._Batches.run, itertools.count(1)

    class Killed(BaseException):
        pass

    def killed(batches: removal._Batches, delete: object) -> bool:
        if next(calls) > killed_after:
            raise Killed
        return run(batches, delete)  # type: ignore[arg-type]

    query = jobs.JobQuery(sweeps=("done",), limit=None)
    selection = plan.Selection(query=query, kinds=frozenset({Kind.ROWS}))
    with monkeypatch.context() as patch:
        patch.setattr(removal._Batches, "run", killed)
        with pytest.raises(Killed):
            removal.carry_out(context, plan.make(context, selection))
    assert world.damage() == []
    with context.store.reading() as work:
        left = work.prune.marked_for_deletion()
        assert {mark.detail for mark in work.prune.marks(left).values()} == {prune.ROWS}
    # Whatever else is asked for.
    other = plan.Selection(query=query, kinds=frozenset({Kind.CHECKPOINTS}))
    assert removal.carry_out(context, plan.make(context, other)).problems == []
    assert world.damage() == []
    assert len(world.remaining()) == 1
    with context.store.reading() as work:
        assert work.sweeps.find("done") is None


def test_a_job_on_which_one_depends_meanwhile_stays(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = pruning.World(context)
    (job,) = world.add("plain", goes=True)
    run = removal._Batches.run

    def interfered(batches: removal._Batches, delete: object) -> bool:
        monkeypatch.setattr(removal._Batches, "run", run)
        (dependent,) = world.add("dependent", goes=False, state=jobs.JobState.PENDING)
        world.depend(dependent, on_job=job.row)
        return run(batches, delete)  # type: ignore[arg-type]

    selection = plan.Selection(query=jobs.JobQuery(limit=None), kinds=frozenset({Kind.ROWS}))
    planned = plan.make(context, selection)
    monkeypatch.setattr(removal._Batches, "run", interfered)
    result = removal.carry_out(context, planned)
    assert result.problems == [f"{job.job_id}: changed by another process meanwhile, and kept"]
    assert world.remaining() == {1, 2}
    assert context.store.check() == []
