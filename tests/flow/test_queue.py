"""submit --queue: submissions that Slurm rejects for now are deferred and submitted later."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import socket
import sqlite3
import threading
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.controller.session import stores

FAILED = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
LIMIT = f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}{POLICY}"
DRAINED = f"{FAILED}Required partition not available (inactive or drain)\n"
LINE = ("--launcher", "python", "--time-limit", "10", "--command")
CLOCK = r"\d\d:\d\d:\d\d"
#: So soon that a test waits for it.
SOON = {"ORCHESTRATOR_RESEND_MIN_SECONDS": "1", "ORCHESTRATOR_RESEND_MAX_SECONDS": "2"}


def queue(cli, name, *options, **environ):
    return cli("submit", "--queue", "--name", name, *options, *LINE, "echo here", **environ)


def job(cli, reference):
    (items,) = cli("show", reference, "--json", "--no-refresh").items
    return items


def resolved(call):
    """A call of sbatch with the script itself, in place of the link that is read at first."""
    return [*call[:-1], str(Path(call[-1]).resolve())]


def pause_seconds(waiting):
    """From the refusal to the next try."""
    refused_at, next_at = waiting["events"][-1]["at"], waiting["resend_at"]
    then = datetime.datetime.fromisoformat
    return (then(next_at) - then(refused_at)).total_seconds()


def make_due(cli, *rows):
    """Let the time of the next try come."""
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        for row in rows:
            connection.execute(
                "UPDATE jobs SET resend_at = '2026-01-01 00:00:00.000000', version = version + 1 "
                "WHERE row = ?",
                (row,),
            )


def test_a_deferred_job_is_submitted_later(cli, fake_slurm):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    done = queue(cli, "demo")
    assert done.code == 0, done.err
    assert re.fullmatch(
        rf"@1 deferred: QOSMaxSubmitJobPerUserLimit; next try at {CLOCK}\n", done.out
    )
    assert done.err == (
        "The next `orchestrator status`, `show`, `refresh` or `wait` after that time submits it; "
        "`orchestrator wait @1` waits until it has ended.\n"
    )
    item = job(cli, "@1")
    assert (item["state"], item["job_id"], item["stale_since"]) == ("NOT_SUBMITTED", None, None)
    assert item["reason"] == "deferred: QOSMaxSubmitJobPerUserLimit"
    assert pause_seconds(item) == pytest.approx(60, abs=1)
    table = cli("status", "--format", "table").out
    assert re.search(
        rf"NOT_SUBMITTED +deferred: QOSMaxSubmitJobPerUserLimit; next try {CLOCK} ", table
    ), table
    shown = cli("show", "demo").out
    assert "Reason:      deferred: QOSMaxSubmitJobPerUserLimit\n" in shown
    assert re.search(r"\nNext try:    \d{4}-", shown)
    # It is not due: nothing is asked of Slurm.
    assert len(fake_slurm.calls("sbatch")) == 1 and fake_slurm.calls("squeue") == []

    make_due(cli, 1)
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 2
    assert pause_seconds(job(cli, "@1")) == pytest.approx(120, abs=1), "twice as long"

    make_due(cli, 1)
    done = cli("wait", "@1")
    assert done.code == 0, done.err
    assert "Submitted batch job 1 (@1, demo)\n" in done.err
    ended = job(cli, "1")
    assert (ended["row"], ended["state"], ended["reason"]) == (1, "COMPLETED", None)
    assert ended["resend_at"] is None
    assert len(cli.run_folders()) == 1
    first, *others = map(resolved, fake_slurm.calls("sbatch"))
    assert others == [first, first]


def test_ended_jobs_free_their_slots_at_once(cli, fake_slurm):
    assert cli("submit", "--name", "first", *LINE, "true").code == 0
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    for name in ("second", "third"):
        assert queue(cli, name).out.startswith("@")
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 3, "nothing has ended, and nothing is due for 60 s"
    fake_slurm.set_state(1, "COMPLETED")
    assert "Submitted batch job 2 (@2, second)\n" in cli("refresh").err
    assert (job(cli, "@2")["state"], job(cli, "@3")["state"]) == ("PENDING", "PENDING")


def test_the_profile_can_ask_for_it(cli, fake_slurm):
    environ = {"ORCHESTRATOR_QUEUE_SUBMISSIONS": "true"}
    fake_slurm.fail("sbatch", stderr=LIMIT, times=3)
    plain = cli("submit", "--name", "a", *LINE, "true", **environ)
    assert (plain.code, plain.out[:12]) == (0, "@1 deferred:")
    done = cli("submit", "--no-queue", "--name", "b", *LINE, "true", **environ)
    assert (done.code, done.out) == (5, "")
    assert done.err.endswith(
        "(stored as @2; `orchestrator resubmit --queue @2` "
        "submits it as soon as Slurm accepts it)\n"
    )
    done = cli("submit", "--parsable", "--name", "c", *LINE, "true", **environ)
    assert (done.code, done.out) == (0, "@3\n")
    wrong = cli("status", ORCHESTRATOR_QUEUE_SUBMISSIONS="1")
    assert wrong.code == 3 and "must be true or false" in wrong.err


def test_submission_that_can_never_start_is_not_deferred(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid qos specification\n")
    done = queue(cli, "demo")
    assert (done.code, done.out) == (5, "")
    assert done.err.endswith("Correct it and submit again. (stored as @1)\n")
    assert job(cli, "@1")["resend_at"] is None
    # Refused for good when it is sent again.
    fake_slurm.fail("sbatch", stderr=LIMIT)
    queue(cli, "later")
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid qos specification\n")
    make_due(cli, 2)
    done = cli("status")
    assert done.code == 0
    assert "@2 was submitted: Slurm refused the job: " in done.err
    assert (job(cli, "@2")["reason"] or "").startswith("Slurm refused the job: ")
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 3


def test_the_oldest_is_sent_first_and_a_limit_is_met_once(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=3)
    for name in "abc":
        queue(cli, name)
    fake_slurm.fail("sbatch", stderr=DRAINED)
    queue(cli, "d", "--partition", "short")
    # The newest of three is due: the oldest is tried, and the others with it put off.
    make_due(cli, 3)
    fake_slurm.fail("sbatch", stderr=LIMIT)
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 5
    first, *_, last = map(resolved, fake_slurm.calls("sbatch"))
    assert last == first
    nexts = [job(cli, f"@{row}")["resend_at"] for row in (1, 2, 3, 4)]
    assert nexts[0] == nexts[1] == nexts[2] != nexts[3]
    # Room for two.
    make_due(cli, 1, 2, 3)
    fake_slurm.fail("sbatch", stderr=LIMIT)
    with contextlib.closing(sqlite3.connect(cli.database)) as connection:
        assert connection.execute("SELECT refusals FROM jobs").fetchall() == [
            (2,),
            (1,),
            (1,),
            (1,),
        ]
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 6 and fake_slurm.jobs() == []
    make_due(cli, 1, 2, 3)
    done = cli("refresh")
    assert [line for line in done.err.splitlines() if line.startswith("Submitted")] == [
        "Submitted batch job 1 (@1, a)",
        "Submitted batch job 2 (@2, b)",
        "Submitted batch job 3 (@3, c)",
    ]
    assert job(cli, "@4")["state"] == "NOT_SUBMITTED"


def test_smaller_jobs_do_not_wait_behind_a_too_large_array(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=4)
    queue(cli, "large", "--array-size", "5")
    queue(cli, "larger", "--array-size", "6")
    queue(cli, "small", "--array-size", "2")
    queue(cli, "one")
    make_due(cli, *range(1, 15))
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    cli("refresh")
    # large is refused, so larger is not tried; small is refused, and one fits.
    assert len(fake_slurm.calls("sbatch")) == 4 + 3
    assert [item["name"].partition(".")[0] for item in fake_slurm.jobs()] == ["one"]
    rows = cli("status", "--json", "--no-refresh").items
    assert {row["state"] for row in rows if row["row"] == 14} == {"PENDING"}
    # All tasks of all that wait are tried together, and a table shows each array as one row.
    assert len({row["resend_at"] for row in rows if row["row"] != 14}) == 1
    table = cli("status", "--format", "table", "--no-refresh").out
    waits = r" +NOT_SUBMITTED +deferred: QOSMaxSubmitJobPerUserLimit; next try "
    for name, numbers in (("large", "0-4"), ("larger", "0-5"), ("small", "0-1")):
        assert re.search(rf"^_\[{numbers}\] +{name}{waits}{CLOCK} ", table, re.MULTILINE), table


@pytest.mark.both_databases
def test_only_one_of_many_processes_sends(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    queue(cli, "a")
    queue(cli, "b")
    make_due(cli, 1, 2)
    fake_slurm.fail("sbatch", delay_seconds=1.0, run_anyway=True, rc=0, stdout="1\n")
    many = [threading.Thread(target=lambda: cli("status", "--refresh")) for _ in range(4)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    assert len(fake_slurm.calls("sbatch")) <= 4
    assert len(fake_slurm.jobs()) == len({item["name"] for item in fake_slurm.jobs()})
    cli("refresh")
    assert len(fake_slurm.jobs()) == 2


def test_cancel_revokes_the_planned_requeue(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT)
    queue(cli, "demo")
    done = cli("cancel", "--name", "demo")
    assert (done.code, done.out) == (0, "@1 is NOT_SUBMITTED\n"), done.err
    make_due_later = job(cli, "@1")
    assert make_due_later["resend_at"] is None
    assert make_due_later["reason"] == "cancelled before it was submitted"
    assert cli("cancel", "@1").out == "@1 had already ended: NOT_SUBMITTED\n"
    assert cli("wait", "@1").code == 1
    cli("refresh")
    assert len(fake_slurm.calls("sbatch")) == 1 and fake_slurm.calls("scancel") == []


def test_an_unsent_array_is_withdrawn_and_submitted_again(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    queue(cli, "large", "--array-size", "3")
    done = cli("cancel", "large")
    assert (done.code, done.out) == (0, "@1-3 is NOT_SUBMITTED\n")
    rows = cli("status", "--json", "--no-refresh").items
    assert {(row["state"], row["reason"], row["resend_at"]) for row in rows} == {
        ("NOT_SUBMITTED", "cancelled before it was submitted", None)
    }
    array = json.loads(cli("show", "large", "--json", "--no-refresh").out)["items"][0]
    assert (array["states"], array["first_failures"]) == ({"NOT_SUBMITTED": 3}, [])
    # The name that submit gives to an array that was refused.
    assert cli("submit", "--name", "other", "--array-size", "2", *LINE, "echo here").code == 5
    held = cli("hold", "other").err
    assert held == "Error: @4 was never submitted; `orchestrator resubmit @4` submits it\n"
    done = cli("resubmit", "@4")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@4-5, other, 2 tasks)\n"), done.err


def test_resubmit_submits_or_defers(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=3)
    queue(cli, "demo")
    done = cli("resubmit", "@1")
    assert (done.code, done.out[:12]) == (0, "@1 deferred:"), done.err
    assert cli("submit", "--name", "plain", *LINE, "true").code == 5
    fake_slurm.fail("sbatch", stderr=LIMIT)
    done = cli("resubmit", "--queue", "plain")
    assert (done.code, done.out[:12]) == (0, "@2 deferred:"), done.err
    done = cli("resubmit", "@1", "@2")
    assert done.out == "Submitted batch job 1 (@1, demo)\nSubmitted batch job 2 (@2, plain)\n"


def test_the_job_has_the_environment_of_its_submission(cli, fake_slurm):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", stderr=LIMIT)
    variables = {"MY_MODULE": "one", "MY_TOKEN": "s3cret", "MY_LEFT_OUT": "x"}
    line = ("--inherit", "MY_MODULE", *LINE, "env | grep ^MY_")
    done = cli("submit", "--queue", "--name", "demo", *line, **variables)
    assert (done.code, done.err.splitlines()[0]) == (
        0,
        "Variables of this shell that are not passed on (the job may be submitted later): 2 "
        "(MY_LEFT_OUT, MY_TOKEN); pass one with --inherit NAME",
    )
    (folder,) = cli.run_folders()
    kept = folder / "environment.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in kept.read_text() and json.loads(kept.read_text())["MY_MODULE"] == "one"
    make_due(cli, 1)
    assert cli("wait", "@1", MY_MODULE="two", MY_OTHER="x").code == 0
    assert cli("logs", "@1").out.splitlines()[1:] == ["MY_MODULE=one"]
    assert not kept.exists()


def test_a_lost_answer_is_looked_for_before_it_is_sent_again(cli, fake_slurm):
    grace = {"ORCHESTRATOR_SUBMIT_GRACE_SECONDS": "1", **SOON}
    lost = f"{FAILED}Socket timed out on send/recv operation\n"
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    # One had the job taken, the other not.
    fake_slurm.fail("sbatch", stderr=lost, run_anyway=True)
    assert queue(cli, "taken", **grace).code == 0
    fake_slurm.fail("sbatch", stderr=lost)
    done = queue(cli, "dropped", **grace)
    assert (done.code, job(cli, "@2")["state"]) == (5, "SUBMIT_UNKNOWN")
    cli.wait_until(lambda: cli("refresh", **grace) and len(fake_slurm.jobs()) == 2, "the second")
    assert [job(cli, f"@{row}")["job_id"] for row in (1, 2)] == ["1", "2"]
    assert len(fake_slurm.calls("sbatch")) == 3


def test_slurm_is_unreachable(cli, fake_slurm):
    fake_slurm.fail(
        "sbatch", stderr=f"{FAILED}Unable to contact slurm controller (connect failure)\n"
    )
    done = queue(cli, "demo", **SOON)
    assert done.out.startswith("@1 deferred: slurmctld did not answer; next try at ")
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    fake_slurm.fail("squeue", stderr=away, times=2)
    make_due(cli, 1)
    assert cli("refresh").code == 5
    assert len(fake_slurm.calls("sbatch")) == 1, "not while squeue fails"
    fake_slurm.heal()
    assert cli("refresh").code == 0
    assert job(cli, "@1")["job_id"] == "1"


def test_submission_waits_for_a_missing_folder(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT)
    queue(cli, "demo")
    make_due(cli, 1)
    work, away = cli.folder, cli.home / "away"
    work.rename(away)
    cli.folder = cli.home
    why = (
        f"{work}, where @1 was submitted, does not exist. Create it, or use `orchestrator submit`."
    )
    done = cli("status", "--refresh")
    assert (done.code, done.err) == (0, f"@1 cannot be submitted from here: {why}\n")
    host = socket.gethostname()
    item = job(cli, "@1")
    assert item["reason"] == f"cannot be submitted from {host}: {why}"
    assert item["events"][-1]["detail"] == item["reason"]
    assert pause_seconds(item) == pytest.approx(120, abs=1)
    make_due(cli, 1)
    assert cli("status", "--refresh").err == "", "reported once"
    assert job(cli, "@1")["events"] == item["events"]
    assert len(fake_slurm.calls("sbatch")) == 1

    # It is there again; this host waits for its time, another need not.
    away.rename(work)
    assert cli("status", "--refresh").code == 0 and fake_slurm.jobs() == []
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        connection.execute("UPDATE jobs SET reason = replace(reason, ?, 'login2')", (host,))
    fake_slurm.fail("squeue", stderr="slurm_load_jobs error: Unable to contact slurm controller")
    assert cli("refresh").code == 5 and fake_slurm.jobs() == [], "not while squeue fails"
    done = cli("status", "--refresh")
    assert (done.code, done.err) == (0, "Submitted batch job 1 (@1, demo)\n")
    assert (job(cli, "1")["reason"], job(cli, "1")["resend_at"]) == (None, None)


def test_a_job_that_cannot_be_sent_keeps_no_other_from_being_sent(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    queue(cli, "bad")
    queue(cli, "good")
    make_due(cli, 1, 2)
    (folder,) = [folder for folder in cli.run_folders() if folder.name.startswith("bad.")]
    (folder / "environment.json").write_text(json.dumps({"X": "\0"}))
    done = cli("status", "--refresh")
    assert "@1 cannot be submitted from here: sbatch could not be started: " in done.err
    assert "Submitted batch job 1 (@2, good)\n" in done.err
    assert job(cli, "@1")["resend_at"] is not None


def test_deferred_jobs_of_an_earlier_version_are_sent(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    for name in "ab":
        queue(cli, name)
    old = {"@1": "waits for room: QOSMaxSubmitJobPerUserLimit", "@2": "cannot be sent from far: no"}
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        for row, reason in old.items():
            connection.execute("UPDATE jobs SET reason = ? WHERE row = ?", (reason, row[1:]))
    assert cli("status", "--refresh").err == "Submitted batch job 1 (@2, b)\n"
    fake_slurm.set_state(1, "COMPLETED")
    assert cli("status", "--refresh").err == "Submitted batch job 2 (@1, a)\n"


def test_unreadable_files_are_sent_later_and_changed_ones_never(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    queue(cli, "a")
    queue(cli, "b")
    first, second = cli.run_folders()
    script, environment = first / "script.sbatch", second / "environment.json"
    for path in (script, environment):
        path.rename(path.with_suffix(".away"))
    make_due(cli, 1, 2)
    done = cli("status", "--refresh")
    assert (done.code, done.err) == (
        0,
        f"@1 cannot be submitted from here: {script} cannot be read. Nothing was submitted.\n"
        f"@2 cannot be submitted from here: {environment}, the environment of the submission, "
        "cannot be read; `orchestrator resubmit --queue @2` submits it with yours\n",
    )
    # sbatch cannot be started: what a variable may hold has an end (128 KiB, man execve).
    environment.write_text(json.dumps({**cli.environ, "LONG": "x" * 200_000}))
    environment.chmod(0o600)
    script.write_text("#!/bin/bash\n")
    make_due(cli, 1, 2)
    done = cli("status", "--refresh")
    assert done.code == 0
    assert f"@1 is not submitted again: {script} differs from the script stored" in done.err
    assert "@2 cannot be submitted from here: sbatch could not be started: " in done.err
    assert job(cli, "@1")["resend_at"] is None
    assert len(fake_slurm.calls("sbatch")) == 2
    environment.with_suffix(".away").rename(environment)
    make_due(cli, 2)
    assert cli("status", "--refresh").err == "Submitted batch job 1 (@2, b)\n"
    assert not environment.exists()


def test_a_sender_that_was_killed(cli, fake_slurm):
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    fake_slurm.fail("sbatch", stderr=LIMIT)
    queue(cli, "demo")
    dead = jobs.Submitter(host="elsewhere", boot_id="x", pid=1, start_ticks=1)
    sending = {"state": jobs.JobState.SUBMITTING, "settled": False, "submitter": dead}
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=10)
    with stores.Store(cli.location) as store, store.writing() as work:
        assert work.jobs.change(1, {**sending, "grace_since": long_ago})
    grace = {"ORCHESTRATOR_SUBMIT_GRACE_SECONDS": "1", **SOON}
    make_due(cli, 1)
    cli.wait_until(lambda: cli("refresh", **grace) and fake_slurm.jobs(), "the job")
    assert job(cli, "@1")["job_id"] == "1"


ARRAY = """\
[job]
name = "sweep"
[launch]
launcher = "python"
command = "true"
[array]
size = 3
"""


def test_of_an_array_that_waits_no_task_is_cancelled_alone(cli, fake_slurm):
    cli.spec(ARRAY)
    fake_slurm.fail("sbatch", stderr=LIMIT)
    assert cli("submit", "--queue", "job.toml").code == 0
    done = cli("cancel", "@2")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        "Error: @2 is a task of an array that is deferred as a whole: "
        "`orchestrator cancel sweep` cancels all its tasks\n"
    )
    assert all(job(cli, f"@{row}")["resend_at"] for row in (1, 2, 3))
    assert cli("cancel", "sweep").out == "@1-3 is NOT_SUBMITTED\n"
    assert not any(job(cli, f"@{row}")["resend_at"] for row in (1, 2, 3))
    assert len(fake_slurm.calls("sbatch")) == 1


def test_arrays_are_put_off_with_all_their_tasks(cli, fake_slurm):
    cli.spec(ARRAY)
    fake_slurm.fail("sbatch", stderr=LIMIT, times=3)
    for _ in range(2):
        assert cli("submit", "--queue", "job.toml").code == 0
    make_due(cli, 1, 2, 3)
    cli("refresh")
    assert len({job(cli, f"@{row}")["resend_at"] for row in range(1, 7)}) == 1


def test_a_dependency_that_slurm_forgot_meanwhile(cli, fake_slurm):
    assert cli("submit", "--name", "first", *LINE, "true").code == 0
    fake_slurm.fail("sbatch", stderr=LIMIT)
    assert queue(cli, "second", "--dependency", "afterok:1").code == 0
    fake_slurm.set_state(1, "FAILED", exit="1:0")
    fake_slurm.forget(1)
    make_due(cli, 2)
    done = cli("refresh")
    assert done.code == 0
    assert "@2 is not submitted again: Slurm has forgotten job 1 (state FAILED)" in done.err
    assert len(fake_slurm.calls("sbatch")) == 2


def test_stored_environment_is_removed_after_submission(cli, fake_slurm):
    lost = f"{FAILED}Socket timed out on send/recv operation\n"
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid qos specification\n")
    queue(cli, "refused")
    fake_slurm.fail("sbatch", stderr=lost, run_anyway=True)
    queue(cli, "adopted")
    cli("refresh")
    assert job(cli, "@2")["job_id"] == "1"
    assert len(cli.run_folders()) == 2
    assert not any((folder / "environment.json").exists() for folder in cli.run_folders())
