"""`prune` and `usage --disk` as commands: what they print, kills, and two at once."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from orchestrator import cli as commands
from orchestrator.controller.session import stores
from tests import builders, pruning
from tests.flow import command_line
from tests.flow.test_local import LINE, here

__all__ = ["here"]

ALL = ("prune", "--rows", "--run-folders", "--checkpoints", "--older-than", "1d", "--yes")
#: Calls after which a kill leaves something half done.
FILE_CALLS = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir"})
#: A job with three checkpoints; $1: how it ends.
TRAIN = (
    'cd "$ORCHESTRATOR_RUN_DIR"; mkdir checkpoints; for n in 1 2 3; do '
    "head -c 100000 /dev/zero >checkpoints/checkpoint-$n.pt; done; "
    "cp checkpoints/checkpoint-2.pt checkpoints/best.pt; echo step 7 loss 0.5; "
)


def run_job(here: command_line.CommandLine, name: str, end: str = "true") -> str:
    """Run a job to its end; return its ID."""
    done = here("submit", "--name", name, *LINE, "--parsable", "--command", TRAIN + end)
    assert (done.code, done.err) == (0, "")
    here("wait", done.out.strip())
    return done.out.strip()


def run_dir(here: command_line.CommandLine, name: str) -> Path:
    (folder,) = here.runs_dir.glob(f"{name}.*")
    return folder


def without_sizes(text: str) -> str:
    """Return a text without what depends on the file system and the day."""
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", re.sub(r"[\d.]+ k?B\b", "SIZE", text))


def test_checkpoints(here):
    run_job(here, "one")
    folder = run_dir(here, "one")
    done = here("prune", "--checkpoints", "--name", "one")
    assert done.code == 0
    assert without_sizes(done.out).splitlines() == [
        "job\tname\twhat\tsize\treason\tpath",
        f"local-1\tone\tcheckpoints\tSIZE\tCOMPLETED since DATE\t{folder}",
    ]
    assert without_sizes(done.err) == (
        "Would remove SIZE: checkpoints of 1 submission. Nothing was changed; --yes removes it.\n"
    )
    assert len([*folder.glob("checkpoints/*")]) == 4
    done = here("prune", "--checkpoints", "--name", "one", "--yes")
    assert without_sizes(done.err) == "Removed SIZE: checkpoints of 1 submission.\n"
    left = sorted(path.name for path in folder.glob("checkpoints/*"))
    assert left == ["best.pt", "checkpoint-3.pt"]
    done = here("prune", "--checkpoints", "--name", "one", "--yes")
    assert (done.code, done.err) == (0, "Nothing to remove.\n")
    done = here("prune", "--all-checkpoints", "--older-than", "0s", "--yes", "--json")
    (item,) = done.items
    assert list(item) == ["job", "row", "name", "what", "size_bytes", "reason", "path"]
    assert not (folder / "checkpoints").exists()


def test_after_a_run_folder_was_removed(here):
    job_id = run_job(here, "one", "echo 'RuntimeError: CUDA out of memory'; exit 3")
    folder = run_dir(here, "one")
    done = here("prune", "--run-folders", "--state", "FAILED", "--yes")
    assert without_sizes(done.err) == "Removed SIZE: 1 run folder.\n"
    assert not folder.exists()

    def note_of(*argv: str) -> str:
        return without_sizes(here(*argv).err)

    pruned = f"the run folder of {job_id} was pruned on DATE"
    metrics = f"`orchestrator metrics {job_id}` shows its metrics"
    assert note_of("logs", job_id) == f"no log: {pruned}; {metrics}\n"
    done = here("metrics", job_id)
    assert (done.code, done.err) == (0, "")
    assert "loss\t0.5" in done.out
    done = here("metrics", job_id, "--name", "accuracy")
    assert without_sizes(done.err).startswith(
        f"Note: {pruned}; only metrics that were read before are stored.\n"
    )
    again = f"`orchestrator resubmit {job_id}` submits it again as a new job"
    assert note_of("requeue", job_id) == f"Error: {pruned}; {again}\n"
    stored = f"Note: {pruned}; this is the copy in the database.\n"
    done = here("show", job_id, "--script")
    assert (without_sizes(done.err), done.out.startswith("#!/bin/bash")) == (stored, True)
    assert note_of("show", job_id, "--spec") == stored
    explained = without_sizes(here("explain", job_id).out).splitlines()
    assert explained[1:3] == [
        "Cause:     oom_device: a GPU ran out of memory",
        f"Note:      {pruned}, and with it its logs",
    ]
    shown = without_sizes(here("show", job_id).out)
    assert f"Note:        {pruned}\n" in shown
    assert "user       pruned: run folder\n" in shown
    done = here("resubmit", job_id)
    assert done.code == 0
    taken = "its script and spec are taken from the database"
    assert without_sizes(done.err).startswith(f"Note: {pruned}; {taken}.\n")
    here("wait", "one")
    assert run_dir(here, "one").is_dir()


def test_rows(here):
    run_job(here, "one")
    run_job(here, "two")
    done = here("prune", "--rows", "local-1", "--yes", "--format", "table")
    assert without_sizes(done.err) == "Removed SIZE: 1 submission with all rows.\n"
    assert here.rows("SELECT row FROM jobs") == [(2,)]
    assert here.rows("SELECT DISTINCT job_row FROM job_events") == [(2,)]
    done = here("metrics", "two")
    assert "loss\t0.5" in done.out
    done = here("logs", "local-1")
    assert (done.code, done.out) == (4, "")
    assert here("db", "check").err == "The database is intact.\n"
    # The number is not used again.
    assert run_job(here, "three") == "local-3"
    assert here.rows("SELECT row FROM jobs ORDER BY row") == [(2,), (3,)]


def test_what_stays_is_named(here):
    done = here("submit", "--name", "long", *LINE, "--command", "sleep 600")
    run_job_id = "local-1"
    done = here("prune", "--run-folders", "--name", "long", "--yes")
    assert (done.code, done.out) == (0, "job\tname\twhat\tsize\treason\tpath\n")
    assert done.err == f"Kept 1 job ({run_job_id}): not ended\nNothing to remove.\n"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--older-than", "30d"], "specify what to remove: --checkpoints, --run-folders, --rows"),
        (["--rows"], "select jobs, for example with --older-than 30d"),
        (["--code", "--name", "x"], "--code takes no jobs: remove them, or add --checkpoints"),
        (["--rows", "--larger-than", "1X"], "'1X' is not a size: write 500MB, 1.5GB"),
    ],
)
def test_usage_errors(here, argv, problem):
    done = here("prune", *argv)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


def test_disk_use(here):
    run_job(here, "one")
    run_job(here, "two", "mkdir torchrun; head -c 400000 /dev/zero >torchrun/x")
    done = here("usage", "--disk", "--json")
    two, one = done.items
    assert (two["job"], one["job"]) == ("local-2", "local-1")
    assert two["torchrun_bytes"] >= 400_000 > 300_000 <= one["checkpoints_bytes"] < 500_000
    kinds = ("log", "checkpoints", "code", "metrics", "torchrun", "other")
    assert one["total_bytes"] == sum(one[f"{kind}_bytes"] for kind in kinds)
    table = here("usage", "--disk", "--format", "table").out.splitlines()
    assert table[0].split() == ["JOB", "NAME", "TOTAL", *(kind.upper() for kind in kinds)]
    assert [line.split()[0] for line in table[1:]] == ["local-2", "local-1", "total"]
    done = here("usage", "--disk", "--by", "name")
    assert "--disk lists jobs: remove --by and --until" in done.err


@contextlib.contextmanager
def world_of(here: command_line.CommandLine, copies: int) -> Iterator[pruning.World]:
    folder = here.home
    with stores.Store(here.location) as store:
        environ = {"ORCHESTRATOR_RUNS_DIR": str(here.runs_dir)}
        context = builders.make_context(folder, store, environ=environ)
        yield pruning.full(context, copies)


def run_and_kill(here: command_line.CommandLine, argv: Sequence[str], kill_at: int) -> int:
    """Run a command in a child that kills itself before a change of a file or of the database.

    Returns its exit code, or the signal as a negative number.
    """
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.environ.clear()
            os.environ.update(here.environ)
            os.chdir(here.folder)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            changes = itertools.count(1)

            def change() -> None:
                if next(changes) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            def statement(connection: object, cursor: object, text: str, *rest: object) -> None:
                if text.startswith(("INSERT", "UPDATE", "DELETE")):
                    change()

            sys.addaudithook(lambda event, _: change() if event in FILE_CALLS else None)
            sa.event.listen(sa.Engine, "before_cursor_execute", statement)
            sa.event.listen(sa.Engine, "commit", lambda connection: change())
            result = commands.cli([*argv], prog_name="orchestrator", standalone_mode=False)
            code = result if isinstance(result, int) else 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("wanted", [12, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_anywhere_and_run_again(here, wanted):
    here.needs_file()
    seed = random.SystemRandom().randrange(10**9)
    chance = random.Random(seed)
    with world_of(here, copies=1) as world:
        kills = worlds = 0
        while kills < wanted:
            world.context.store.close()
            code = run_and_kill(here, ALL, chance.randrange(1, 40))
            assert code in (0, -signal.SIGKILL), (seed, kills, code)
            kills += code != 0
            assert world.damage() == [], (seed, kills)
            if code == 0:
                # All is gone that may go.
                worlds += 1
                pruning.add_all(world, worlds)
                world.remember()
        world.context.store.close()
        assert run_and_kill(here, ALL, 0) == 0
        assert world.damage() == [], seed
        stays = {row for row, may_go in world.may_go.items() if not may_go}
        assert world.remaining() == stays, seed
        assert [*here.runs_dir.glob(".pruned*")] == []
        with world.context.store.reading() as work:
            folders = {Path(job.run_dir) for job in work.jobs.by_row(stays).values()}
        assert {*here.runs_dir.iterdir()} == folders, seed


def test_two_at_once(here):
    here.needs_file()
    with world_of(here, copies=1) as world:
        world.context.store.close()
        children = [here.start(*ALL) for _ in range(2)]
        outcomes = [command_line.finish(child) for child in children]
        assert {done.code for done in outcomes} <= {0, 1}, outcomes
        problems = [line for done in outcomes for line in done.err.splitlines()]
        others = ("Removed", "Kept", "Not removed", "Nothing to remove", "Removing")
        assert [line for line in problems if not line.startswith(others)] == []
        assert world.damage() == []
        stays = {row for row, may_go in world.may_go.items() if not may_go}
        assert world.remaining() == stays
        assert [*here.runs_dir.glob(".pruned*")] == []
