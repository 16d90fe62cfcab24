"""Sweeps: from the table of a spec to jobs, each point once."""

from __future__ import annotations

import collections
import datetime
import os
import pty
import re
import sqlite3
import subprocess
import sys
import time

import pytest

from orchestrator import config, jobs, sweeps
from orchestrator.controller.session import stores
from tests import builders
from tests.flow import command_line

GRID = """\
[job]
name = "grid"
time_limit = "30"
[launch]
launcher = "python"
script = "train.py"
[sweep]
kind = "grid"
axes.args.lr = [0.1, 0.01]
axes.args.seed = [1, 2, 3]
"""
#: Fails for one point of six.
PROGRAM = "import sys\nprint(*sys.argv[1:])\nsys.exit(7 if sys.argv[1:] == {bad!r} else 0)\n"
BAD = ["--lr", "0.01", "--seed", "2"]
FAILED = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
LIMIT = f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}{POLICY}"
CLOCK = r"\d\d:\d\d:\d\d"
SMALL = {"ORCHESTRATOR_MAX_SUBMIT_JOBS": "4"}
PLAN = "grid (grid): 6 points, {}, at most 3 node-hours\n"


@pytest.fixture
def grid(cli):
    """The spec's file; its program ends well."""
    (cli.folder / "train.py").write_text(PROGRAM.format(bad=None))
    return cli.spec(GRID, "grid.toml")


def states(cli, name="grid"):
    items = cli("sweep", "status", name, "--no-refresh", "--json").items
    result = collections.Counter()
    for item in items:
        result[str(item["state"])] += item["points"]
    return dict(result)


def words_of_points(cli, fake_slurm):
    """What the program of each job was called with, whatever the array."""
    logs = [log.read_text() for log in cli.runs_dir.glob("*/*.out")]
    return sorted(line for text in logs for line in text.splitlines() if "--seed" in line)


ALL = [f"--lr {lr} --seed {seed}" for lr in (0.01, 0.1) for seed in (1, 2, 3)]


@pytest.mark.both_databases
def test_grid_from_file_to_end(cli, fake_slurm, grid):
    fake_slurm.run_jobs()
    plan = cli("sweep", "submit", grid, "--dry-run", "--format", "table")
    assert plan.err == PLAN.format("1 submission")
    assert [line.rstrip() for line in plan.out.splitlines()] == [
        "POINTS  NODES  GPUS_PER_NODE  PARTITION  TIME_LIMIT  FIRST                 LAST",
        "6       1                                30          lr0.1-seed1-bcd5df39  "
        "lr0.01-seed3-1f390a92",
    ]
    assert fake_slurm.calls("sbatch") == [] and cli.rows() == []

    (cli.folder / "train.py").write_text(PROGRAM.format(bad=BAD))
    done = cli("sweep", "submit", grid, "--wait")
    assert done.out == "Submitted 6 points of sweep grid (@1)\n"
    assert done.err.startswith(
        PLAN.format("1 submission") + "Submitted batch job 1 (@1-6, grid, 6 tasks)\n"
    )
    assert done.err.endswith(
        "Error: 1 of 6 points did not complete; see `orchestrator sweep status @1 --points`\n"
    )
    assert done.code == 1
    assert len(fake_slurm.calls("sbatch")) == 1
    assert words_of_points(cli, fake_slurm) == ALL
    shown = cli("sweep", "status", "grid", "--format", "table").out
    assert [line.split() for line in shown.splitlines()] == [
        ["STATE", "POINTS", "EXIT", "REASON"],
        ["COMPLETED", "5", "0:0"],
        ["FAILED", "1", "7:0"],
    ]
    points = cli("sweep", "status", "grid", "--points", "--json").items
    assert (points[4]["settings"], points[4]["state"], points[4]["exit_code"]) == (
        {"args.lr": 0.01, "args.seed": 2},
        "FAILED",
        7,
    )
    (listed,) = cli("sweep", "list", "--json").items
    assert [listed[name] for name in ("name", "kind", "completed", "failed", "node_hours")] == [
        "grid",
        "grid",
        5,
        1,
        3.0,
    ]
    jobs_of = {word: cli("status", "--sweep", word, "--json").items for word in ("grid", "@1")}
    assert {job["sweep"] for job in jobs_of["grid"]} == {"grid"}
    assert jobs_of["@1"] == jobs_of["grid"]
    assert cli("status", "--sweep", "@2").code == 4

    # Only what failed is submitted again, and its new job is the one that counts.
    (cli.folder / "train.py").write_text(PROGRAM.format(bad=None))
    done = cli("sweep", "rerun", "grid")
    assert (done.code, done.out) == (0, "Submitted 1 point of sweep grid (@1)\n"), done.err
    assert done.err == "Submitted batch job 7 (@7, grid)\n"
    assert cli("wait", "--sweep", "grid").code == 0
    assert states(cli) == {"COMPLETED": 6}
    assert cli("sweep", "rerun", "grid").out == "Nothing left to submit of sweep grid (@1)\n"
    assert len(fake_slurm.calls("sbatch")) == 2
    # A resubmitted job takes its point along.
    assert cli("resubmit", "1_0").code == 0
    assert cli("sweep", "status", "grid", "--points", "--json").items[0]["row"] == 8
    # By its name however it ended; but not while it runs.
    assert cli("sweep", "rerun", "grid", "--point", "2").err.startswith("Submitted batch job 9 ")
    cli("wait", "--sweep", "grid")
    done = cli("sweep", "rerun", "grid", "--point", "7")
    assert (done.code, done.err) == (
        4,
        "Error: grid has no point 7: `orchestrator sweep status @1 --points` lists its points\n",
    )
    again = cli("sweep", "submit", grid)
    assert again.out == "Submitted 6 points of sweep grid (@2)\n", "the name is free: all ended"
    assert states(cli, "@1") == {"COMPLETED": 6}


def test_deferred_points_are_submitted(cli, fake_slurm, grid):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", stderr=LIMIT, times=1)
    environ = {**SMALL, "ORCHESTRATOR_RESEND_MIN_SECONDS": "1"}
    done = cli("sweep", "submit", grid, **environ)
    assert (done.code, done.out) == (
        0,
        "Submitted 0 points of sweep grid (@1), 6 deferred\n",
    ), done.err
    assert re.fullmatch(
        re.escape(PLAN.format("3 submissions"))
        + rf"@1-2 deferred: QOSMaxSubmitJobPerUserLimit; next try at {CLOCK}\n"
        "`orchestrator status`, `sweep status`, `refresh` or `wait` submits deferred points as "
        "soon as limits allow; `orchestrator wait --sweep @1` waits until all have ended.\n",
        done.err,
    ), done.err
    # The first refusal is enough: the others would get the same.
    assert len(fake_slurm.calls("sbatch")) == 1
    refused = cli("sweep", "submit", grid)
    assert (refused.code, refused.err.splitlines()[1]) == (
        6,
        "Error: sweep grid (@1) exists and 6 of its points have not ended: `orchestrator sweep "
        "status @1` shows it, `orchestrator sweep add @1 FILE` adds points to it, and --name "
        "gives this sweep another name",
    )
    assert cli("wait", "--sweep", "grid").code == 0
    assert states(cli) == {"COMPLETED": 6}
    assert words_of_points(cli, fake_slurm) == ALL
    assert len(fake_slurm.calls("sbatch")) == 4


def test_deferred_points_are_not_submitted_after_a_killed_cancel(cli, fake_slurm, grid):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", stderr=LIMIT, times=1)
    environ = {**SMALL, "ORCHESTRATOR_RESEND_MIN_SECONDS": "1"}
    cli("sweep", "submit", grid, **environ)
    # All that `sweep cancel` had done when it was killed.
    with sqlite3.connect(cli.database) as database:
        database.execute("UPDATE sweeps SET state = 'cancelled'")
    database.close()
    message = (
        "is not submitted again: its sweep grid is cancelled: `orchestrator sweep resume @1` opens"
    )
    cli.wait_until(lambda: cli("status", "--refresh", **environ).err.count(message) == 3)
    assert len(fake_slurm.calls("sbatch")) == 1
    assert states(cli) == {"NOT_SUBMITTED": 6}
    assert cli("sweep", "resume", "grid").out == "Submitted 6 points of sweep grid (@1)\n"
    assert cli("wait", "--sweep", "grid").code == 0
    assert words_of_points(cli, fake_slurm) == ALL


def test_cancelled_sweep_does_not_wait_for_its_baseline(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT)
    environ = {"ORCHESTRATOR_RESEND_MIN_SECONDS": "1"}
    cli("sweep", "submit", cli.spec(STUDY, "study.toml"), **environ)
    with stores.Store(cli.location) as store, store.writing() as work:
        work.sweeps.set_state(work.sweeps.get(1), "cancelled")
    message = "is not submitted again: its sweep study is cancelled: "
    cli.wait_until(lambda: cli("status", "--refresh", **environ).err.count(message) == 3)


def test_cancel_stops_a_running_resume(cli, fake_slurm, grid):
    fake_slurm.fail("sbatch", stderr=LIMIT)
    cli("sweep", "submit", grid, **SMALL)
    assert cli("sweep", "cancel", "grid").code == 0
    fake_slurm.fail("sbatch", rc=0, stdout="1\n", run_anyway=True, delay_seconds=4)
    process = cli.start("sweep", "resume", "grid")
    cli.wait_until(lambda: len(fake_slurm.calls("sbatch")) == 2, "the first array again")
    cli("sweep", "cancel", "grid", "--timeout", "0")
    done = command_line.finish(process)
    assert done.code == 6 and "its sweep grid is cancelled: " in done.err, done.err
    assert len(fake_slurm.calls("sbatch")) == 2
    assert states(cli)["NOT_SUBMITTED"] == 4


@pytest.mark.parametrize("taken", [False, True], ids=["before", "after"])
def test_killed_in_the_middle_and_resumed(cli, fake_slurm, grid, taken):
    """SIGKILL while the second of three calls of sbatch runs, before or after Slurm took the job.

    The points of the third are submitted by `resume`, those of the second are looked for.
    """
    in_slurm = 4 if taken else 2
    fake_slurm.run_jobs()
    seconds = {"SUBMIT_GRACE_SECONDS": "1", "RESEND_MIN_SECONDS": "1"}
    environ = {**SMALL, **{f"ORCHESTRATOR_{name}": text for name, text in seconds.items()}}
    fake_slurm.fail("sbatch", rc=0, stdout="1\n", run_anyway=True)
    fake_slurm.fail("sbatch", delay_seconds=60, run_anyway=taken)
    process = cli.start("sweep", "submit", grid, **environ)
    cli.wait_until(lambda: len(fake_slurm.calls("sbatch")) == 2, "the second sbatch")
    # The sbatch of the simulated Slurm starts the scripts: it must not be killed before.
    cli.wait_until(
        lambda: [job["state"] != "PENDING" for job in fake_slurm.jobs()] == [True] * in_slurm,
        "its jobs",
    )
    process.kill()
    process.communicate()
    left = states(cli)["None"]
    assert left == 2
    done = cli("wait", "--sweep", "grid", "--timeout", "0")
    assert (done.code, done.err) == (
        6,
        f"Error: {left} of 6 points of grid are not submitted: "
        "`orchestrator sweep resume @1` submits them\n",
    )
    done = cli("sweep", "resume", "grid", **environ)
    assert done.code == 0, done.err
    cli.wait_until(
        lambda: cli("wait", "--sweep", "grid", "--timeout", "5", **environ).code == 0, "the end"
    )
    assert states(cli) == {"COMPLETED": 6}
    assert words_of_points(cli, fake_slurm) == ALL
    assert max(collections.Counter(words_of_points(cli, fake_slurm)).values()) == 1


def test_refused_for_good_and_resumed(cli, fake_slurm, grid):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid qos specification\n")
    done = cli("sweep", "submit", grid, **SMALL)
    assert done.code == 5 and done.out == ""
    assert done.err.endswith(
        "(stored as @1)\n"
        "6 points of grid are not submitted: `orchestrator sweep resume @1` submits "
        "them, each point once\n"
    )
    assert states(cli) == {"NOT_SUBMITTED": 2, "None": 4}
    (listed,) = cli("sweep", "list", "--json").items
    assert (listed["state"], listed["unsubmitted"], listed["failed"]) == ("open", 6, 0)
    # An array is sent as a whole, with its token.
    done = cli("sweep", "rerun", "grid", "--point", "1", **SMALL)
    assert (done.code, done.out) == (0, "Submitted 2 points of sweep grid (@1)\n")
    done = cli("sweep", "resume", "grid", **SMALL)
    assert (done.code, done.out) == (0, "Submitted 4 points of sweep grid (@1)\n")
    assert states(cli) == {"PENDING": 6}


def test_an_array_that_became_too_large_is_split(cli, fake_slurm, grid):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid job array specification\n")
    assert cli("sweep", "submit", grid).code == 5
    fake_slurm.configure(MaxArraySize="4")
    done = cli("sweep", "resume", "grid")
    assert (done.code, done.out) == (0, "Submitted 6 points of sweep grid (@1)\n"), done.err
    assert done.err == (
        "Submitted batch job 1 (@7-10, grid, 4 tasks)\n"
        "Submitted batch job 5 (@11-12, grid, 2 tasks)\n"
    )
    assert states(cli) == {"PENDING": 6}


def test_cancelled_and_opened_again(cli, fake_slurm, grid):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid qos specification\n")
    cli("sweep", "submit", grid, **SMALL)
    assert cli("sweep", "cancel", "grid").out == (
        "Cancelled sweep grid (@1): 0 points; 4 were never submitted\n"
    )
    shown = cli("sweep", "status", "grid").out
    assert shown.splitlines()[2] == "\t4\t\tcancelled"
    done = cli("sweep", "add", "grid", grid, "--set", "sweep.repeats=2")
    assert (done.code, done.err) == (
        6,
        "Error: grid is cancelled: `orchestrator sweep resume @1` opens it again\n",
    )
    assert cli("sweep", "resume", "grid").code == 0
    assert states(cli) == {"PENDING": 6}
    (job_id, *_) = (job["job_id"] for job in cli("status", "--sweep", "grid", "--json").items)
    fake_slurm.set_state(job_id, "FAILED", exit="3:0")
    assert cli("sweep", "cancel", "grid").out == (
        "Cancelled sweep grid (@1): 5 points; 1 had already ended\n"
    )
    assert states(cli) == {"CANCELLED": 5, "FAILED": 1}
    (listed,) = cli("sweep", "list", "--json").items
    assert (listed["failed"], listed["missing"]) == (1, 5)
    assert listed["state"] == "cancelled"
    # Nothing is left to submit, but the sweep is open again: all its points have ended.
    done = cli("sweep", "resume", "grid")
    assert (done.err, done.out) == (
        "Sweep grid (@1) is open again\n",
        "Nothing left to submit of sweep grid (@1)\n",
    )
    assert [item["state"] for item in cli("sweep", "list", "--json").items] == ["ended"]
    done = cli("sweep", "rerun", "grid", "--failed")
    assert done.out == "Submitted 1 point of sweep grid (@1)\n"
    assert [item["state"] for item in cli("sweep", "list", "--json").items] == ["open"]
    done = cli("sweep", "rerun", "grid", "--missing")
    assert done.out == "Submitted 5 points of sweep grid (@1)\n"


def test_points_are_added(cli, fake_slurm, grid):
    cli("sweep", "submit", grid)
    extra = ("--set", "sweep.axes.args.seed=[1, 2, 3, 4]")
    done = cli("sweep", "add", "grid", grid, *extra)
    assert (done.code, done.out) == (0, "Submitted 2 points of sweep grid (@1)\n"), done.err
    assert done.err == (
        "grid (grid): 2 points, 1 submission, at most 1 node-hours\n"
        "Submitted batch job 7 (@7-8, grid, 2 tasks)\n"
    )
    done = cli("sweep", "add", "grid", grid, *extra, "--set", "sweep.max_running=2", "--json")
    assert done.err == (
        "sweep.max_running is ignored: @1 keeps its value\ngrid already has all 8 points\n"
    )
    assert [(item["state"], item["points"]) for item in done.items] == [("PENDING", 8)]
    planned = cli("sweep", "add", "grid", grid, "--set", "sweep.repeats=2", "--dry-run", "--json")
    assert [item["points"] for item in planned.items] == [6]
    done = cli("sweep", "add", "grid", grid, "--time-limit", "20")
    assert (done.code, done.err) == (
        6,
        "Error: lr0.1-seed1-bcd5df39 of grid is another job than in this file: submit it as "
        "another sweep, with --name\n",
    )
    assert states(cli) == {"PENDING": 8}


def test_a_limit_of_one_submitted_task(cli, fake_slurm, grid):
    planned = cli("sweep", "submit", grid, "--dry-run", "--json", ORCHESTRATOR_MAX_SUBMIT_JOBS="1")
    assert [item["points"] for item in planned.items] == [1] * 6, planned.err


def test_no_more_than_max_running(cli, fake_slurm, grid):
    """Each array keeps it by its throttle, and waits for those that would run beside it."""
    most = ("--set", "sweep.max_running=2", "--dependency", "after:99")
    assert cli("sweep", "submit", grid, *most, **SMALL).code == 0
    calls = fake_slurm.calls("sbatch")
    assert dependencies(calls) == ["", "after:99,afterany:1", "after:99,afterany:3"]
    done = cli("sweep", "submit", grid, *most[:3], "after:9?after:8", "--name", "other")
    assert done.code == 3
    assert done.err.splitlines()[0] == (
        f'Error: {grid}: job.dependency: "?" cannot go with sweep.max_running or '
        "baseline_first, which add dependencies"
    )


STUDY = """\
[job]
name = "study"
time_limit = "30"
[launch]
module = "trainers.train"
[args]
batch_size = 64
[sweep]
kind = "strong"
nodes = [4, 2, 1]
repeats = 2
baseline_first = true
"""


def test_baseline_runs_first(cli, fake_slurm):
    spec = cli.spec(STUDY, "study.toml")
    fake_slurm.fail("sbatch", stderr=LIMIT)
    environ = {"ORCHESTRATOR_RESEND_MIN_SECONDS": "1"}
    done = cli("sweep", "submit", spec, **environ)
    assert done.out == "Submitted 0 points of sweep study (@1), 6 deferred\n", done.err
    cli.wait_until(lambda: cli("refresh", **environ) and "None" not in waiting(cli), "all sent")
    calls = fake_slurm.calls("sbatch")
    assert dependencies(calls) == ["", "", "afterok:1", "afterok:1"]
    assert [job["nodes"] for job in fake_slurm.jobs()[::2]] == [1, 2, 4]
    fake_slurm.set_state("1_0", "FAILED", exit="1:0")
    fake_slurm.set_state("1_1", "COMPLETED")
    assert cli("sweep", "cancel", "study").code == 0
    done = cli("sweep", "rerun", "study", "--point", "1")
    assert (done.code, done.err.splitlines()[1]) == (
        6,
        "Error: 1 points of the baseline of study were not submitted or failed: "
        "`orchestrator sweep rerun @1` submits them first",
    )
    assert cli("sweep", "rerun", "study").out == "Submitted 5 points of sweep study (@1)\n"
    assert dependencies(fake_slurm.calls("sbatch")[4:]) == ["", "afterok:7", "afterok:7"]


def test_rest_of_the_baseline_goes_first(cli, fake_slurm):
    spec = cli.spec(STUDY, "study.toml")
    assert cli("sweep", "submit", spec).code == 0
    fake_slurm.set_state("1_0", "FAILED", exit="1:0")
    fake_slurm.set_state("1_1", "RUNNING")
    assert cli("cancel", "3", "5").code == 0
    assert cli("sweep", "rerun", "study").out == "Submitted 5 points of sweep study (@1)\n"
    # `afterok:1` would never hold: a task of that array failed.
    result = dependencies(fake_slurm.calls("sbatch")[3:])
    assert [set(item.split(":")) for item in result[1:]] == [{"afterok", "1_1", "7"}] * 2
    assert result[0] == ""


def test_deferred_points_are_not_submitted_after_a_failed_baseline(cli, fake_slurm):
    spec = cli.spec(STUDY, "study.toml")
    environ = {"ORCHESTRATOR_RESEND_MIN_SECONDS": "1"}
    # The baseline is accepted, the others exceed the submit limit.
    fake_slurm.fail("sbatch", rc=0, stdout="1\n", run_anyway=True)
    fake_slurm.fail("sbatch", stderr=LIMIT)
    assert cli("sweep", "submit", spec, **environ).out.endswith(", 4 deferred\n")
    fake_slurm.set_state("1_0", "FAILED", exit="1:0")
    fake_slurm.set_state("1_1", "FAILED", exit="1:0")
    output = cli("refresh", **environ).err
    why = "is not submitted again: 2 baseline points of its sweep failed\n"
    assert f"@3 {why}" in output and f"@5 {why}" in output
    assert states(cli, "study") == {"FAILED": 2, "NOT_SUBMITTED": 4}
    # First the baseline again, then the points that were never submitted.
    assert cli("sweep", "rerun", "study").out == "Submitted 6 points of sweep study (@1)\n"
    calls = fake_slurm.calls("sbatch")[2:]
    assert dependencies(calls) == ["", "afterok:3", "afterok:3"]


def dependencies(calls):
    result = [[word for word in call if word.startswith("--dependency=")] for call in calls]
    return [words[0].partition("=")[2] if words else "" for words in result]


def waiting(cli):
    return {str(job["job_id"]) for job in cli("status", "--no-refresh", "--json").items}


def test_dry_runs(cli, fake_slurm, grid):
    scripts = cli("sweep", "render", grid, **SMALL).out
    assert re.findall(r"^### .*$", scripts, re.M) == [
        "### script 1 of 3: 2 points",
        "### script 2 of 3: 2 points",
        "### script 3 of 3: 2 points",
    ]
    assert scripts.count("#!/bin/bash") == 3
    done = cli("sweep", "render", grid, "--point", "3")
    assert (done.out, done.err) == (
        "--lr 0.1 --seed 3\n",
        "lr0.1-seed3-571b8e58: args.lr = 0.1, args.seed = 3\n",
    )
    done = cli("submit", grid)
    assert done.code == 3
    assert (
        "grid.toml:7: sweep: this file describes several jobs: use `orchestrator sweep submit` or "
        "`sweep render`\n    7 | [sweep]\n1 problem; nothing was submitted.\n"
    ) in done.err
    done = cli("sweep", "submit", grid, ORCHESTRATOR_CONFIRM_POINTS="5")
    assert done.code == 2
    assert done.err.endswith(
        "Error: 6 points are more than confirm_points = 5: confirm with --yes\n"
    )
    done = cli("sweep", "submit", grid, "--gpus-per-node", "1", "--time-limit", "UNLIMITED")
    assert done.code == 2
    assert done.err.endswith(
        "Error: 6 points with GPUs have no known time limit (job.time_limit): confirm with --yes\n"
    )
    assert cli("sweep", "submit", grid, "--yes", ORCHESTRATOR_CONFIRM_POINTS="5").code == 0
    done = cli("sweep", "status", "other")
    assert (done.code, done.err) == (
        4,
        "Error: sweep 'other' not found: `orchestrator sweep list` lists all sweeps\n",
    )


def test_local_sweep(cli, fake_slurm, grid):
    """Without Slurm the points run in the slots, and a killed submission is resumed."""
    local = ("--scheduler", "local")
    most = ("--set", "sweep.max_running=1")
    done = cli("sweep", "submit", grid, *local, *most, "--wait", **SMALL)
    assert (done.code, done.out) == (0, "Submitted 6 points of sweep grid (@1)\n"), done.err
    assert "Submitted batch job local-3 (@3-4, grid, 2 tasks)\n" in done.err
    assert words_of_points(cli, fake_slurm) == ALL
    assert fake_slurm.calls() == []
    (cli.folder / "train.py").write_text(PROGRAM.format(bad=None) + "# new\n")
    done = cli("sweep", "rerun", "grid", "--point", "4", ORCHESTRATOR_SCHEDULER="local")
    assert (done.code, done.err) == (0, "Submitted batch job local-7 (@7, grid)\n")
    assert cli("wait", "--sweep", "grid").code == 0


MANY = """\
[job]
name = "many"
[launch]
module = "m"
[sweep]
kind = "grid"
"""


@pytest.mark.parametrize(("answer", "code", "sent"), [("y", 0, 1), ("n", 130, 0)])
def test_confirmation(cli, fake_slurm, grid, answer, code, sent):
    ours, theirs = pty.openpty()
    program = "import sys; from orchestrator import cli; cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "sweep", "submit", grid],
        cwd=cli.folder,
        env={**cli.environ, "ORCHESTRATOR_CONFIRM_POINTS": "5"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    output = b""
    while b"[y/N]: " not in output:
        output += os.read(ours, 4096)
    assert b"6 points are more than confirm_points = 5. Submit? [y/N]: " in output
    os.write(ours, f"{answer}\n".encode())
    out, _ = process.communicate(timeout=command_line.TIMEOUT_SECONDS)
    os.close(ours)
    assert (process.returncode, len(fake_slurm.calls("sbatch"))) == (code, sent)
    assert out == (b"Submitted 6 points of sweep grid (@1)\n" if sent else b"")
    assert len(cli.rows("SELECT * FROM sweeps")) == sent


def test_10000_points_are_shown_in_a_second(cli, tmp_path):
    """Budget: 1.5 times what a command takes that lists nothing, and one second."""
    numbers = str([*range(100)])
    path = cli.spec(f"{MANY}axes.args.a = {numbers}\naxes.args.b = {numbers}\n")
    sweep = sweeps.load(path, profile=config.Profile(), folder=None)
    cli.state_dir.mkdir(parents=True, mode=0o700)
    at = datetime.datetime.now(datetime.UTC)
    state = jobs.JobState
    with stores.Store(cli.location) as store, store.writing() as work:
        stored = work.sweeps.add(
            sweep,
            profile=config.Profile().name,
            cluster="fake",
            scheduler="slurm",
            source="many.toml",
            folder="/",
            created_at=at,
        )
        for number in range(9):
            record = builders.make_submission(
                number, at, cluster="fake", name="many", script="x" * 100000
            )
            ended = state.COMPLETED if number else state.TIMEOUT
            fields = {"state": ended, "settled": True, "exit_code": 0, "sweep": "many"}
            added = work.jobs.add_submission(record, array_tasks=range(1000), **fields)
            points = sweep.points[1000 * number : 1000 * (number + 1)]
            assert work.sweeps.assign_jobs(stored.row, points, [job.row for job in added])

    def seconds(*argv):
        begun = time.monotonic()
        assert cli(*argv).code == 0
        return time.monotonic() - begun

    assert states(cli, "many") == {"TIMEOUT": 1000, "COMPLETED": 8000, "None": 1000}
    bare = min(seconds("status", "--name", "none") for _ in range(2))
    shown = min(seconds("sweep", "status", "many") for _ in range(2))
    assert shown < 1.5 * bare + 1
