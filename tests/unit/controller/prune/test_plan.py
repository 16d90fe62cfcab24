"""What may go, and why the rest stays, with both databases and real run folders."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import jobs, prune
from orchestrator.controller.actions import confirmed
from orchestrator.controller.prune import plan, removal
from orchestrator.controller.session import contexts, stores
from orchestrator.jobs import JobState
from orchestrator.prune import Kind
from tests import builders, pruning
from tests.pruning import DAY, NOW, World

ALL = jobs.JobQuery(limit=None)


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    with stores.Store(database_url) as store:
        made = builders.make_context(tmp_path, store, now=NOW)
        yield builders.with_clock(made, sleep=lambda seconds: None)


def make(context: contexts.Context, *kinds: Kind, **fields: object) -> plan.Plan:
    selection = plan.Selection(query=ALL, kinds=frozenset(kinds))
    return plan.make(context, dataclasses.replace(selection, **fields))  # type: ignore[arg-type]


def rows_of(planned: plan.Plan) -> set[int]:
    return {job.row for group in planned.groups for job in group.jobs}


def test_all_that_is_needed_stays(context: contexts.Context) -> None:
    world = pruning.full(context)
    goes = {row for row, may_go in world.may_go.items() if may_go}
    for kind in (Kind.CHECKPOINTS, Kind.RUN_FOLDER, Kind.ROWS):
        planned = make(context, kind)
        assert rows_of(planned) == goes, kind
        kept = {job.row for listed in planned.kept.values() for job in listed}
        assert kept == world.may_go.keys() - goes
    names = {
        reason: sorted({job.name for job in listed}) for reason, listed in planned.kept.items()
    }
    assert names == {
        "not ended": ["dependent", "live", "live-chain", "reader"],
        "LOST: they may still be running": ["lost"],
        "[retry] may continue them": ["planned", "retry"],
        "their end is not confirmed yet": ["mixed"],
        "ended less than an hour ago: Slurm may start them again": ["young"],
        "deferred: they will be submitted later": ["deferred"],
        "a job that has not ended depends on them": ["needed"],
        "the spec or script of a live job, schedule, sweep or graph names them": ["named"],
        "points of a sweep that is not finished": ["open"],
        "jobs of a graph that is not finished": ["open-node"],
        "baseline b0 names them as its source": ["in-baseline"],
        "baseline s0 names them as its source": ["measured"],
        "schedule nightly0 compares its next runs with them": ["nightly"],
    }
    assert world.damage() == []


@pytest.mark.parametrize("kind", [Kind.CHECKPOINTS, Kind.RUN_FOLDER, Kind.ROWS])
def test_what_may_go_is_removed(context: contexts.Context, kind: Kind) -> None:
    world = pruning.full(context)
    goes = {row for row, may_go in world.may_go.items() if may_go}
    with context.store.reading() as work:
        by_row = work.jobs.by_row(goes)
    result = removal.carry_out(context, make(context, kind))
    assert result.problems == []
    assert world.damage() == []
    folders = {Path(job.run_dir) for job in by_row.values()}
    if kind is Kind.CHECKPOINTS:
        left = {path.name for folder in folders for path in (folder / "checkpoints").glob("*")}
        assert left == {"checkpoint-3.pt", "best.pt"}
        assert world.remaining() == world.may_go.keys()
    else:
        assert [folder for folder in folders if folder.exists()] == []
        gone = goes if kind is Kind.ROWS else set()
        assert world.remaining() == world.may_go.keys() - gone
    if kind is Kind.ROWS:
        _check_other_tables(context, world)
    assert [*context.configuration.runs_dir.glob(".pruned*")] == []
    # Nothing is left for a second time.
    again = make(context, kind)
    assert (again.items, rows_of(again)) == ([], set())


def _check_other_tables(context: contexts.Context, world: World) -> None:
    with context.store.reading() as work:
        assert work.sweeps.find("done0") is None and work.sweeps.find("in0") is None
        assert [graph.name for graph in work.graphs.newest()] == ["unfinished"]
        for schedule in work.schedules.all(states=("active", "removed")):
            triggers = work.schedules.triggers(schedule.row)
            # Planned times and verdicts stay.
            assert {trigger.verdict for trigger in triggers} == {"ok"}
            assert {trigger.job_row for trigger in triggers} - {None} <= world.remaining()
        tokens = {job.token for job in work.jobs.find(ALL)}
        assert len(work.prune.run_dirs()) == len(tokens)


def test_a_plan_changes_nothing(context: contexts.Context) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=True)
    before = {path: path.stat().st_mtime_ns for path in Path(job.run_dir).rglob("*")}
    planned = make(context, Kind.ROWS, Kind.RUN_FOLDER, Kind.CHECKPOINTS)
    assert [item.kind for item in planned.items] == [Kind.ROWS]
    assert {path: path.stat().st_mtime_ns for path in Path(job.run_dir).rglob("*")} == before
    with context.store.reading() as work:
        assert work.jobs.get(job.row) == job


def test_age_and_size(context: contexts.Context) -> None:
    world = World(context)
    (old,) = world.add("old", goes=True, days=50)
    (new,) = world.add("new", goes=True, days=5)
    assert rows_of(make(context, Kind.ROWS, ended_before=NOW - 20 * DAY)) == {old.row}
    (Path(new.run_dir) / "large").write_bytes(b"x" * 200_000)
    assert rows_of(make(context, Kind.ROWS, larger_than_bytes=150_000)) == {new.row}
    # What would be removed counts: not the newest checkpoint.
    (Path(old.run_dir) / "checkpoints/checkpoint-3.pt").write_bytes(b"x" * 200_000)
    earlier = Path(new.run_dir) / "checkpoints/checkpoint-2.pt"
    earlier.write_bytes(b"x" * 200_000)
    os.utime(earlier, (2, 2))
    assert rows_of(make(context, Kind.CHECKPOINTS, larger_than_bytes=150_000)) == {new.row}


def test_a_continuation_job_keeps_the_checkpoints_of_the_first(context: contexts.Context) -> None:
    world = World(context)
    (first,) = world.add("chain", goes=True, days=50, state=JobState.TIMEOUT)
    (second,) = world.add("chain", goes=True, days=5, continues=first)
    planned = make(context, Kind.RUN_FOLDER, ended_before=NOW - 20 * DAY)
    assert (rows_of(planned), planned.kept) == (set(), {})
    # The state of the last job counts.
    query = dataclasses.replace(ALL, states=("COMPLETED",))
    planned = plan.make(context, plan.Selection(query=query, kinds=frozenset({Kind.RUN_FOLDER})))
    assert rows_of(planned) == {first.row, second.row}
    query = dataclasses.replace(ALL, states=("TIMEOUT",))
    planned = plan.make(context, plan.Selection(query=query, kinds=frozenset({Kind.RUN_FOLDER})))
    assert rows_of(planned) == set()


def test_all_checkpoints(context: contexts.Context) -> None:
    world = World(context)
    world.add("array", goes=True, tasks=2)
    planned = make(context, Kind.CHECKPOINTS, all_checkpoints=True)
    assert removal.carry_out(context, planned).problems == []
    (folder,) = context.configuration.runs_dir.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["1.out", "2.out", "script.sbatch"]


def test_a_requested_requeue_keeps_the_job(context: contexts.Context) -> None:
    world = World(context)
    jobs_by_hours = {hours: world.add("plain", goes=hours > 1)[0] for hours in (0.5, 1.5)}
    with context.store.writing() as work:
        for hours, job in jobs_by_hours.items():
            event = context.event("ask", "scontrol requeue requested")
            at = NOW - datetime.timedelta(hours=hours)
            work.events.add(job.row, dataclasses.replace(event, at=at))
    planned = make(context, Kind.RUN_FOLDER)
    assert rows_of(planned) == {jobs_by_hours[1.5].row}
    assert [*planned.kept] == ["Slurm was asked to change them within the last hour"]


def test_a_pruned_job_is_not_requeued(context: contexts.Context) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=True)
    removal.carry_out(context, make(context, Kind.RUN_FOLDER))
    asked: list[object] = []
    slurm: Any = SimpleNamespace(change=lambda *words: asked.append(words) or {})
    context = dataclasses.replace(context, slurm_client=lambda: slurm)
    # As if the folder had been there when the requeue was checked.
    action = confirmed.Action(
        name="requeue", objection=lambda job: "", is_done=lambda before, now: False
    )
    (outcome,) = confirmed.ask(context, [job], action)
    assert (outcome.end, outcome.why) == (
        confirmed.End.REFUSED,
        f"its run folder was pruned on {NOW.astimezone():%Y-%m-%d}",
    )
    assert asked == []


@pytest.mark.parametrize("change", ["requeued", "resubmitted", "depended on"])
def test_a_change_after_the_plan_keeps_the_job(context: contexts.Context, change: str) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=False)
    (other,) = world.add("other", goes=True)
    planned = make(context, Kind.ROWS)
    if change == "depended on":
        (dependent,) = world.add("dependent", goes=False, state=JobState.PENDING)
        world.depend(dependent, on_job=job.row)
    else:
        with context.store.writing() as work:
            live = {"state": JobState.PENDING, "settled": False, "attempt": 1, "ended_at": None}
            work.jobs.change(job.row, live if change == "requeued" else {})
    world.remember()
    result = removal.carry_out(context, planned)
    assert result.problems == [f"{job.job_id}: changed by another process meanwhile, and kept"]
    assert world.damage() == []
    assert other.row not in world.remaining()


def test_folders_that_are_not_ours_stay(
    context: contexts.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(context)
    linked, moved, foreign = (world.add(name, goes=False)[0] for name in "abc")
    elsewhere = tmp_path / "elsewhere"
    os.rename(linked.run_dir, elsewhere)
    os.symlink(elsewhere, linked.run_dir)
    with context.store.writing() as work:
        connection = work._connection
        connection.exec_driver_sql(
            f"UPDATE submissions SET run_dir = '{tmp_path}/elsewhere' WHERE token = '{moved.token}'"
        )
    os.chown(foreign.run_dir, 12345, -1)
    planned = make(context, Kind.RUN_FOLDER)
    assert planned.items == []
    assert {reason: [job.name for job in kept] for reason, kept in planned.kept.items()} == {
        "their run folder was replaced by something else": ["a"],
        "the path of their run folder is not one that orchestrator makes": ["b"],
        "their run folder belongs to another user": ["c"],
    }
    assert (elsewhere / "script.sbatch").exists()


def test_a_folder_that_others_can_change_stays(context: contexts.Context) -> None:
    world = World(context)
    world.add("plain", goes=False)
    context.configuration.runs_dir.chmod(0o777)
    planned = make(context, Kind.RUN_FOLDER)
    (reason,) = planned.kept
    assert planned.items == []
    assert reason.startswith(f"{context.configuration.runs_dir}/plain.")
    assert "can be written by every user" in reason


def test_a_folder_that_is_not_visible_here_stays(context: contexts.Context) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=False)
    runs_dir = context.configuration.runs_dir
    runs_dir.rename(runs_dir.with_name("unmounted"))
    planned = make(context, Kind.ROWS)
    reason = f"{runs_dir}, the parent of their run folders, is not visible on this host"
    assert {reason: [kept.row for kept in of] for reason, of in planned.kept.items()} == {
        reason: [job.row]
    }


def test_what_an_interrupted_removal_left_is_removed(context: contexts.Context) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=True)
    runs_dir = context.configuration.runs_dir
    os.rename(job.run_dir, runs_dir / prune.leftover_name(Path(job.run_dir).name))
    # Of another installation, and a file of that name.
    (runs_dir / ".pruned.plain.zzzz00000001").mkdir()
    (runs_dir / f".pruned.file.{job.token}").touch()
    planned = make(context)
    assert [item.path.name for item in planned.leftovers] == [f".pruned.plain.{job.token}"]
    removal.carry_out(context, planned)
    names = sorted(path.name for path in runs_dir.iterdir())
    assert names == [f".pruned.file.{job.token}", ".pruned.plain.zzzz00000001"]


def test_metrics_and_causes_are_stored_before_a_log_goes(context: contexts.Context) -> None:
    world = World(context)
    (job,) = world.add("plain", goes=True, state=JobState.FAILED)
    log = Path(str(job.stdout_path))
    with context.store.writing() as work:
        work.jobs.change(job.row, {"stdout_path": str(log.with_name("new.out")), "exit_code": 1})
    head = f"=== orchestrator plain job {job.job_id} task 0 attempt 0"
    banner = f"{head} on n1 at 2026-11-20T08:00:00Z ==="
    log.with_name("new.out").write_text(
        f"{banner}\nstep 5 accuracy 0.5\nRuntimeError: CUDA out of memory\n"
    )
    result = removal.carry_out(context, make(context, Kind.RUN_FOLDER))
    assert result.problems == []
    assert not log.parent.exists()
    with context.store.reading() as work:
        stored = work.jobs.get(job.row)
        assert stored is not None and stored.cause == "oom_device"
        assert "accuracy" in work.metrics.names([job.row])
