"""hold, release, requeue and resubmit: their Slurm calls, and how they check the results."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import sqlite3
import threading
from pathlib import Path

import pytest

from orchestrator import jobs
from orchestrator.controller.session import stores

#: Longer than sbatch may take.
LONG = datetime.timedelta(minutes=10)
FAILED = "sbatch: error: Batch job submission failed: "
LINE = ("--launcher", "python", "--time-limit", "10", "--command")


def submit(cli, name="demo", command="echo here", *options):
    done = cli("submit", "--name", name, *options, *LINE, command)
    assert done.code == 0, done.err


def history(cli, reference):
    """Return the events of a job, oldest first, without the cause of a failure."""
    (job,) = cli("show", reference, "--json", "--no-refresh").items
    return [
        (event["source"], event["detail"]) for event in job["events"] if event["kind"] != "cause"
    ]


def changes(fake_slurm):
    """Return the calls of scontrol that change something."""
    return [argv for argv in fake_slurm.calls("scontrol") if argv[0] not in ("show", "ping", "-o")]


def test_hold_and_release(cli, fake_slurm):
    submit(cli, "a")
    submit(cli, "b", "echo here", "--label", "team=vision")
    submit(cli, "c", "echo here", "--label", "team=vision")

    done = cli("hold", "1", "2", "a")
    assert (done.code, done.err) == (0, "")
    assert done.out == "1 is PENDING (JobHeldUser)\n2 is PENDING (JobHeldUser)\n"
    assert changes(fake_slurm) == [["hold", "1,2"]]
    done = cli("hold", "--label", "team=vision")
    assert (done.code, done.err) == (0, "")
    assert sorted(done.out.splitlines()) == [
        "2 was already held: PENDING (JobHeldUser)",
        "3 is PENDING (JobHeldUser)",
    ]
    assert changes(fake_slurm)[1:] == [["hold", "3"]]

    fake_slurm.run_jobs()
    done = cli("release", "1", "b")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"1 is [A-Z]+.*\n2 is [A-Z]+.*\n", done.out)
    assert changes(fake_slurm)[2:] == [["release", "1,2"]]
    assert cli("wait", "1", "2").code == 0
    assert ("user", "scontrol hold requested") in history(cli, "1")
    assert ("user", "scontrol release requested") in history(cli, "1")
    assert ("squeue", "SUBMITTING -> PENDING") not in history(cli, "1")
    done = cli("release", "1")
    assert (done.code, done.out) == (6, "")
    assert done.err == "Error: 1 has ended (COMPLETED)\n"


def test_jobs_that_cannot_be_held(cli, fake_slurm):
    submit(cli, "a")
    submit(cli, "b")
    fake_slurm.set_state(1, "RUNNING")
    done = cli("hold", "1", "2")
    assert (done.code, done.out) == (6, "2 is PENDING (JobHeldUser)\n")
    assert done.err == (
        "Error: 1 is RUNNING; only a pending job can be held. `orchestrator requeue --hold 1` "
        "stops it and holds it\n"
    )
    assert changes(fake_slurm) == [["hold", "2"]]
    assert cli("release", "1").out == "1 is not held: RUNNING\n"
    assert cli("hold").code == 2


def test_unconfirmed_action_is_an_error(cli, fake_slurm):
    submit(cli)
    # scontrol release exits with 0 in any case.
    fake_slurm.fail("scontrol", rc=0)
    done = cli("hold", "1", "--timeout", "1.5")
    assert (done.code, done.out) == (5, "")
    # On a slow machine the first query alone takes a second, and a progress message is printed.
    assert done.err.removeprefix("Waiting until Slurm shows it for 1 ...\n") == (
        "Error: Slurm accepted the request, but still shows 1 PENDING (Priority); "
        "check with `orchestrator status 1`\n"
    )


def test_requests_refused_by_slurm(cli, fake_slurm):
    submit(cli, "a")
    submit(cli, "b")
    fake_slurm.set_state(1, "RUNNING")
    no = "Requested operation is presently disabled for job 1\n"
    fake_slurm.fail("scontrol", stderr=no)
    done = cli("requeue", "1")
    assert (done.code, done.out) == (5, "")
    assert done.err == (
        "Error: Slurm refused the request for 1: Requested operation is presently disabled (the "
        "job was submitted with --no-requeue, or the site disables requeueing; after it has "
        "ended, `orchestrator resubmit 1` submits it again)\n"
    )
    refused = "scontrol requeue was refused: Requested operation is presently disabled"
    assert history(cli, "1")[-1] == ("user", refused)
    away = "Unable to contact slurm controller (connect failure)\n"
    fake_slurm.fail("scontrol", stderr=away)
    done = cli("hold", "2")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("Error: scontrol could not reach slurmctld: Unable to contact")
    fake_slurm.fail("squeue", stderr=f"slurm_load_jobs error: {away}")
    done = cli("hold", "2")
    assert (done.code, done.out) == (5, "")
    assert "squeue could not reach slurmctld" in done.err
    assert done.err.endswith("(nothing was changed)\n")
    assert changes(fake_slurm) == [["requeue", "1"], ["hold", "2"]]


def test_an_id_that_slurm_gave_to_another_job(cli, fake_slurm):
    submit(cli)
    other = {"name": "stranger", "stdout": "/x/%j.out", "command": "/x/y", "comment": ""}
    fake_slurm.set_state(1, "PENDING", submit_line="sbatch y", **other)
    done = cli("hold", "1")
    assert (done.code, done.out) == (6, "")
    assert changes(fake_slurm) == []


def test_requeue(cli, fake_slurm):
    submit(cli, "a")
    submit(cli, "b")
    submit(cli, "c")
    fake_slurm.set_state(1, "RUNNING")
    fake_slurm.set_state(2, "FAILED", exit="3:0")
    assert cli("refresh").code == 0
    done = cli("requeue", "--hold", "1", "2", "3")
    assert (done.code, changes(fake_slurm)) == (6, [["requeuehold", "1,2"]])
    assert done.out == (
        "1 is PENDING (job requeued in held state)\n2 is PENDING (job requeued in held state)\n"
    )
    assert done.err == "Error: 3 is already pending; `orchestrator hold 3` holds it\n"
    (job,) = cli("show", "2", "--json", "--no-refresh").items
    assert (job["state"], job["attempt"]) == ("PENDING", 1)
    assert "needs action: it was requeued and is held" in cli("show", "2").out
    done = cli("requeue", "1")
    assert done.err == "Error: 1 is already pending, held; `orchestrator release 1` releases it\n"
    assert cli("release", "1").out == "1 is PENDING (Priority)\n"
    fake_slurm.set_state(3, "COMPLETED")
    assert cli("refresh").code == 0
    fake_slurm.forget(3)
    done = cli("requeue", "3")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        "Error: 3 has ended (COMPLETED) and Slurm has forgotten it; "
        "`orchestrator resubmit 3` submits it again as a new job\n"
    )


def test_submissions_that_never_reached_slurm_are_resent(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n", times=2)
    assert cli("submit", "--name", "demo", *LINE, "pwd; echo here").code == 5
    (folder,) = cli.run_folders()
    assert cli("hold", "@1").err == (
        "Error: @1 was never submitted; `orchestrator resubmit @1` submits it\n"
    )
    assert cli("resubmit", "--fresh", "@1").err == (
        "Error: @1 was never submitted, so it is submitted with its stored script and token. "
        "For another script, use `orchestrator submit`.\n"
    )
    again = cli("resubmit", "@1")
    assert (again.code, again.out) == (5, "")
    assert again.err.endswith("(stored as @1)\n")
    fake_slurm.run_jobs()
    elsewhere = cli.home / "elsewhere"
    elsewhere.mkdir()
    done = cli("resubmit", "demo", cwd=elsewhere)
    assert (done.code, done.out, done.err) == (0, "Submitted batch job 1 (@1, demo)\n", "")
    assert cli.run_folders() == [folder]
    first, *others = fake_slurm.calls("sbatch")
    # The first was called with a link, which names the script since.
    first[-1] = str(Path(first[-1]).resolve())
    assert others == [first, first]
    assert cli("wait", "1").code == 0
    # It ran where it was submitted first.
    assert cli("logs", "1").out.splitlines()[1:] == [str(cli.folder), "here"]
    details = [detail for _, detail in history(cli, "1")]
    assert details.count("sent again, with the same token and folder") == 2
    (job,) = cli("show", "1", "--json").items
    assert (job["row"], job["state"], job["reason"]) == (1, "COMPLETED", None)


@pytest.mark.both_databases
def test_only_one_of_two_processes_resends(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n")
    assert cli("submit", "--name", "demo", *LINE, "echo here").code == 5
    ends = []
    many = [threading.Thread(target=lambda: ends.append(cli("resubmit", "@1"))) for _ in range(4)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()
    assert sorted(done.code for done in ends) == [0, 6, 6, 6], [done.err for done in ends]
    assert len(fake_slurm.jobs()) == 1
    assert len(fake_slurm.calls("sbatch")) == 2


def test_a_submission_on_another_host_gets_its_time(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n")
    assert cli("submit", "--name", "demo", *LINE, "echo here").code == 5
    # The intent is old; the resend is not.
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        connection.execute("UPDATE jobs SET created_at = '2020' || substr(created_at, 5)")
    now = datetime.datetime.now(datetime.UTC)
    there = jobs.Submitter(host="elsewhere", boot_id="x", pid=1, start_ticks=1)
    sending = {"state": jobs.JobState.SUBMITTING, "settled": False, "submitter": there}
    for sent_at, state in ((now, "SUBMITTING"), (now - LONG, "SUBMIT_UNKNOWN")):
        with stores.Store(cli.location) as store, store.writing() as work:
            assert work.jobs.change(1, {**sending, "grace_since": sent_at})
        done = cli("resubmit", "@1")
        assert (done.code, done.out) == (6, "")
        assert done.err == (
            f"Error: @1 is {state}; only a job that has ended, or that Slurm never had, can be "
            "resubmitted. `orchestrator status @1` shows it; `cancel` ends it, `requeue` restarts "
            "it.\n"
        )
    assert len(fake_slurm.calls("sbatch")) == 1


@pytest.mark.parametrize("shown", [True, False], ids=["in squeue", "by its claim alone"])
def test_a_job_that_slurm_had_after_all(cli, fake_slurm, shown):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n", run_anyway=True)
    assert cli("submit", "--name", "demo", *LINE, "echo here").code == 5
    fake_slurm.wait_for(1, "COMPLETED")
    if not shown:
        fake_slurm.forget(1)
    done = cli("resubmit", "@1")
    assert (done.code, done.out) == (6, "")
    assert "it is 1, COMPLETED" in done.err or "it ran as job 1 and is COMPLETED" in done.err
    assert len(fake_slurm.calls("sbatch")) == 1
    (job,) = cli("show", "@1", "--json").items
    assert (job["job_id"], job["state"]) == ("1", "COMPLETED")


def test_a_script_that_was_changed_is_not_sent(cli, fake_slurm):
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n")
    assert cli("submit", "--name", "demo", *LINE, "echo here").code == 5
    (folder,) = cli.run_folders()
    (folder / "script.sbatch").write_text("#!/bin/bash\n")
    done = cli("resubmit", "@1")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        f"Error: {folder}/script.sbatch differs from the script stored with @1. "
        "Nothing was submitted. Use `orchestrator submit`.\n"
    )
    assert cli.rows() == [(1, "NOT_SUBMITTED")]


def test_ended_job_is_resubmitted_as_a_new_job(cli, fake_slurm):
    submit(cli, "demo", "echo here", "--label", "team=vision")
    live = cli("resubmit", "1")
    assert (live.code, live.out) == (6, "")
    assert live.err == (
        "Error: 1 is PENDING; only a job that has ended, or that Slurm never had, can be "
        "resubmitted. `orchestrator status 1` shows it; `cancel` ends it, `requeue` restarts it.\n"
    )
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    fake_slurm.run_jobs()
    elsewhere = cli.home / "elsewhere"
    elsewhere.mkdir()
    moved = {"ORCHESTRATOR_RUNS_DIR": str(cli.home / "other-runs")}
    done = cli("resubmit", "1", "--parsable", cwd=elsewhere, **moved)
    assert (done.code, done.out, done.err) == (0, "2\n", "")
    old, new = (cli("show", f"@{row}", "--json").items[0] for row in (1, 2))
    # The script searches for its folder at the rendered path.
    assert len(cli.run_folders()) == 2 and old["run_dir"] != new["run_dir"]
    assert (new["name"], new["labels"]) == (old["name"], ["team=vision"])
    scripts = [(fake_slurm.folder / f"script.{number}").read_text() for number in (1, 2)]
    assert scripts[0] == scripts[1] == cli("show", "2", "--script").out
    assert ("user", "resubmitted as @2") in history(cli, "@1")
    assert ("user", "resubmits @1") in history(cli, "@2")
    assert cli("wait", "2").code == 0
    assert cli("logs", "2").out.splitlines()[1:] == ["here"]
    record = json.loads((cli.run_folders()[0] / "provenance.json").read_text())
    assert record["folder"] == str(cli.folder)
    fresh = cli("resubmit", "1", "--fresh", **moved)
    assert (fresh.code, fresh.out) == (0, "Submitted batch job 3 (@3, demo)\n")
    script = (fake_slurm.folder / "script.3").read_text()
    assert script == scripts[0].replace(str(cli.runs_dir), moved["ORCHESTRATOR_RUNS_DIR"])
    cli.folder.rename(cli.home / "away")
    cli.folder = elsewhere
    assert "where 1 was submitted, does not exist" in cli("resubmit", "1").err


def test_an_invalid_submission_does_not_stop_the_others(cli, fake_slurm):
    for name in "abcd":
        submit(cli, name)
    for job_id in (2, 4):
        fake_slurm.set_state(job_id, "FAILED", exit="3:0")
    done = cli("resubmit", "1", "2", "3", "4", "--parsable")
    assert (done.code, done.out) == (6, "5\n6\n")
    live = "only a job that has ended, or that Slurm never had, can be resubmitted. "
    hint = "shows it; `cancel` ends it, `requeue` restarts it.\n"
    assert done.err == (
        f"Error: 1 is PENDING; {live}`orchestrator status 1` {hint}"
        f"3 is PENDING; {live}`orchestrator status 3` {hint}"
    )
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Invalid partition name specified\n")
    done = cli("resubmit", "1", "2", "4")
    assert (done.code, done.out) == (5, "Submitted batch job 7 (@8, d)\n")
    assert "1 is PENDING" in done.err and "(stored as @7)" in done.err


def test_a_dependency_on_a_job_that_slurm_has_forgotten(cli, fake_slurm):
    submit(cli, "parent")
    after = ("--launcher", "python", "--time-limit", "10", "--command", "true", "--dependency")
    done = cli("submit", "--name", "child", *after, "afterok:1:99")
    assert (done.code, done.out) == (6, "")
    assert done.err.splitlines()[-1] == (
        "Error: Slurm has forgotten job 99 (it is not in the database), so it cannot tell whether"
        ' "afterok:1:99" is satisfied; some releases would start the job at once. If it ended as'
        " required, leave the dependency out. Nothing was submitted."
    )
    assert len(fake_slurm.calls("sbatch")) == 1
    file = "#!/bin/bash\n#SBATCH -d afterok:1:99\ntrue\n"
    (cli.folder / "child.sbatch").write_text(file)
    done = cli("submit", "child.sbatch")
    assert (done.code, len(fake_slurm.calls("sbatch"))) == (6, 1)
    assert "Slurm has forgotten job 99" in done.err
    done = cli("submit", "child.sbatch", "--dependency", "afterany:99")
    assert (done.code, done.out) == (0, "Submitted batch job 2 (@2, child)\n"), done.err
    assert "--dependency=afterany:99" in fake_slurm.calls("sbatch")[-1]
    done = cli("submit", "--name", "child", *after, "afterok:1")
    assert (done.code, len(fake_slurm.calls("sbatch"))) == (0, 3)
    assert "--dependency" not in " ".join(fake_slurm.calls("sbatch")[-1]), "the script has it"
    for job_id in (1, 3):
        fake_slurm.set_state(job_id, "FAILED", exit="3:0")
    assert cli("refresh").code == 0
    fake_slurm.forget(1)
    done = cli("resubmit", "3")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        "Error: Slurm has forgotten job 1 (state FAILED), so it cannot tell whether"
        ' "afterok:1" is satisfied; some releases would start the job at once. A stored job keeps'
        " its dependency. If the other job ended as required, submit this one with"
        " `orchestrator submit`, without the dependency (`orchestrator show 3` shows its spec)."
        " Nothing was submitted.\n"
    )


def test_only_unknown_dependencies_are_queried(cli, fake_slurm):
    for name in "abc":
        submit(cli, name)
    before = len(fake_slurm.calls("scontrol"))
    submit(cli, "child", "true", "--dependency", "afterok:1:2:3")
    assert len(fake_slurm.calls("scontrol")) == before
    assert len(fake_slurm.calls("squeue")) == 1
    fake_slurm.forget(2)
    done = cli("submit", "--name", "x", *LINE, "true", "--dependency", "afterok:1:2:3")
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("Error: Slurm has forgotten job 2 (last state PENDING), so it ")
    assert len(fake_slurm.calls("scontrol")) == before + 1
