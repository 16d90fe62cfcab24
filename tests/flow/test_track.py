"""Users' batch files and jobs submitted without orchestrator: submit FILE, track JOBID."""

from __future__ import annotations

import contextlib
import json
import sqlite3

BATCH = """#!/usr/bin/env python3
#SBATCH --job-name=old --nodes=2
#SBATCH --output fixed.out
import os, sys
print("Epoch Throughput: 7.5 images/second")
sys.exit(int(sys.argv[1]))
"""
HAND = """#!/bin/bash
echo "Epoch Throughput: 8.5 images/second"
"""


def write(cli, name, text):
    path = cli.folder / name
    path.write_text(text)
    return path


def test_a_batch_file_becomes_a_job_like_others(cli, fake_slurm):
    fake_slurm.run_jobs()
    write(cli, "run.sbatch", BATCH)
    done = cli("submit", "run.sbatch", "--nodes", "1", "--label", "a=b", "--", "3", "--x")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, old)\n")
    assert done.err == (
        "run.sbatch:3: --output=fixed.out must contain %j, or several jobs would write to the same "
        "log: the log goes to the run folder\n"
    )
    (call,) = fake_slurm.calls("sbatch")
    (folder,) = cli.run_folders()
    assert [word.replace(folder.name[4:], "TOKEN") for word in call] == [
        "--parsable",
        "--job-name=old.TOKEN",
        f"--output={cli.runs_dir}/old.TOKEN/%j.out",
        "--comment=TOKEN",
        "--nodes=1",
        "--open-mode=append",
        f"{cli.runs_dir}/old.TOKEN/script.sbatch",
        "3",
        "--x",
    ]
    assert cli("wait", "old").code == 1
    (job,) = cli("show", "old", "--json").items
    assert (job["state"], job["exit_code"], job["labels"]) == ("FAILED", 3, ["a=b"])
    (metric,) = cli("metrics", "old", "--json").items
    assert (metric["value"], metric["attempt"]) == (7.5, 0)
    record = json.loads((folder / "provenance.json").read_text())
    assert (record["spec"], record["template"]) == ("run.sbatch", "batch.sbatch.j2")

    # The stored text is used; --fresh reads the file again.
    script = cli("show", "old", "--script").out
    write(cli, "run.sbatch", BATCH.replace("7.5", "9.5"))
    assert cli("resubmit", "1").out == "Submitted batch job 2 (@2, old)\n"
    assert cli("resubmit", "1", "--fresh").out == "Submitted batch job 3 (@3, old)\n"
    assert cli("show", "@2", "--script").out == script
    assert cli("show", "@3", "--script").out == script.replace("7.5", "9.5")
    for again in fake_slurm.calls("sbatch")[1:]:
        assert again[4:6] + again[7:] == ["--nodes=1", "--open-mode=append", "3", "--x"]
    assert cli("wait", "@2", "@3").code == 1


def test_render_shows_what_submit_sends(cli, fake_slurm):
    write(cli, "job.sh", HAND.replace("\n", "\n#SBATCH -t 5\n", 1))
    rendered = cli("render", "job.sh", "--partition", "gpu")
    assert rendered.code == 0
    assert rendered.err == "On sbatch's command line: --partition=gpu --open-mode=append\n"
    assert cli("submit", "job.sh", "--dry-run").out == rendered.out
    assert cli("submit", "job.sh", "--partition", "gpu").code == 0
    assert cli("show", "job", "--script").out == rendered.out
    assert cli("submit", "job.sh", "--test-only", "--partition", "gpu").code == 0
    assert "--partition=gpu" in fake_slurm.calls("sbatch")[-1]


def test_batch_files_that_are_refused(cli, fake_slurm):
    write(cli, "run.sbatch", "#!/bin/bash\n#SBATCH --clusters=b -t 5\n")
    done = cli("submit", "run.sbatch")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        "Error: run.sbatch:2: --clusters: is refused: jobs are submitted only to the default "
        "cluster of sbatch\n    2 | #SBATCH --clusters=b -t 5\n1 problem; nothing was submitted.\n"
    )
    assert cli("submit", "none.sbatch").err == (
        "Error: none.sbatch: cannot be read: No such file or directory\n"
        "1 problem; nothing was submitted.\n"
    )
    assert fake_slurm.calls("sbatch") == []


def test_job_submitted_with_sbatch_is_tracked(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--hold", str(path)])
    done = cli("track", "1", "--name", "mine", "--pattern", "olivia")
    assert (done.code, done.out, done.err) == (0, "Tracking 1 (@1, mine): PENDING\n", "")
    assert cli("track", "1").out == "1 is already tracked as @1 (mine)\n"
    assert cli("show", "mine", "--script").out == HAND
    fake_slurm.run_jobs()
    assert cli("release", "mine").code == 0
    assert cli("wait", "mine").code == 0
    (metric,) = cli("metrics", "mine", "--json").items
    assert metric["value"] == 8.5
    (job,) = cli("show", "mine", "--json").items
    detail = job["events"][0]["detail"]
    assert detail == "tracked from now on; PENDING in Slurm under the name hand.sh"


def test_a_later_job_with_its_id_is_another(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--hold", str(path)])
    cli("track", "1")
    fake_slurm.forget(1, sacct=True)
    with fake_slurm_state(fake_slurm) as data:
        data["next_id"] = 1
        del data["jobs"]["1"]
    cli.run(["sbatch", "--hold", str(path)])
    with fake_slurm_state(fake_slurm) as data:
        data["jobs"]["1"]["submit"] += 60
    (job,) = cli("show", "@1", "--refresh", "--json").items
    assert job["state"] == "LOST"
    assert job["reason"].startswith("Slurm has assigned job ID 1 to another job; ")
    assert cli("cancel", "@1").out == "1 had already ended: LOST\n"
    assert cli("track", "1").out == "Tracking 1 (@2, hand.sh): PENDING\n"


def test_a_later_job_of_ours_with_its_id_is_another(cli, fake_slurm):
    (cli.folder / "train.py").touch()
    for name in ("lost", "other"):
        done = cli("submit", "--name", name, "--parsable", "--", "train.py")
        assert done.out == "1\n", done.err
        if name == "lost":
            fake_slurm.forget(1, sacct=True)
            with fake_slurm_state(fake_slurm) as data:
                data["next_id"] = 1
                del data["jobs"]["1"]
    (job,) = cli("show", "lost", "--refresh", "--json").items
    assert job["state"] == "LOST"
    assert job["reason"].startswith("Slurm has assigned job ID 1 to another job; ")
    (job,) = cli("show", "1", "--json").items
    assert (job["name"], job["state"]) == ("other", "PENDING")


def fake_slurm_state(fake_slurm):
    from tests.flow.fake_slurm import fake

    return fake.state(fake_slurm.folder)


def test_jobs_that_cannot_be_tracked(cli, fake_slurm):
    for words, code, text in (
        (("7",), 4, "Error: squeue and sacct show no job 7 of yours; "),
        (("x",), 4, "Error: 'x' is not a job ID of Slurm, such as 123 or 123_4\n"),
        (("7", "--label", "x"), 2, "Error: write --label KEY=VALUE (got x)\n"),
        (("7", "--name", "a b"), 2, "Error: --name must be 1 to 100 letters"),
        (("7", "--name", "8"), 2, "Error: --name reads as a job ID"),
    ):
        done = cli("track", *words)
        assert (done.code, done.out) == (code, ""), done.err
        assert text in done.err
    assert cli.run_folders() == []


def test_untrackable_job_does_not_stop_the_others(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--hold", str(path)])
    done = cli("track", "x", "7", "1")
    assert (done.code, done.out) == (4, "Tracking 1 (@1, hand.sh): PENDING\n")
    assert done.err == (
        "Error: 'x' is not a job ID of Slurm, such as 123 or 123_4\n"
        "squeue and sacct show no job 7 of yours; `orchestrator track` takes a job ID that "
        "`squeue --me` prints\n"
    )
    # The exit code is that of the first problem.
    done = cli("track", "1", "7", "--name", "other")
    assert (done.code, len(done.err.splitlines())) == (6, 2), done.err
    assert cli("track", "7", "1", "--name", "other").code == 4


def test_the_log_of_a_tracked_job_can_be_named_later(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--hold", str(path)])
    assert cli("track", "1").code == 0
    other = write(cli, "other.log", "hello\n")
    assert cli("track", "1", "--log", "other.log").out == "1 is already tracked as @1 (hand.sh)\n"
    assert cli("logs", "1", "--path").out == f"{other}\n"
    done = cli("track", "1", "--name", "new")
    assert (done.code, done.out) == (6, "")
    assert done.err == "Error: 1 is already tracked as @1 (hand.sh): only --log can be changed\n"


def test_renamed_job_of_ours_is_not_tracked_twice(cli, fake_slurm):
    assert cli("submit", "--name", "a", "--launcher", "python", "--command", "true").code == 0
    with fake_slurm_state(fake_slurm) as data:
        data["jobs"]["1"]["name"] = "site-0001"
    assert cli("track", "1").out == "1 is already tracked as @1 (a)\n"


def test_a_job_whose_row_was_lost_is_followed(cli, fake_slurm):
    assert cli("submit", "--name", "a", "--launcher", "python", "--command", "true").code == 0
    with contextlib.closing(sqlite3.connect(cli.database)) as connection, connection:
        connection.executescript(
            "DELETE FROM job_events; DELETE FROM attempts; DELETE FROM jobs; "
            "DELETE FROM submissions;"
        )
    assert cli("track", "1").code == 0
    fake_slurm.set_state(1, "RUNNING")
    (job,) = cli("show", "1", "--refresh", "--json").items
    assert (job["state"], job["stale_since"]) == ("RUNNING", None)


def test_a_waiting_task_of_a_tracked_array_that_was_cancelled_by_hand(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--array=0-2", str(path)])
    assert cli("track", "1").out == "Tracking 1 (@1 to @3, hand.sh): 3 tasks\n"
    cli.run(["scancel", "1_2"])
    grace = {"ORCHESTRATOR_SUBMIT_GRACE_SECONDS": "1"}

    def task():
        (items,) = cli("show", "@3", "--refresh", "--json", **grace).items
        return items

    cli.wait_until(lambda: task()["state"] != "PENDING", "its end")
    items = task()
    # As many as fit into the grace period.
    answers = int(items["reason"].split()[2])
    assert answers >= 3
    assert (items["state"], items["reason"]) == (
        "CANCELLED",
        f"missing from {answers} results of squeue while pending: Slurm has no record of this "
        "task, and it never started",
    )


def test_only_the_tasks_that_were_named_are_cancelled(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    cli.run(["sbatch", "--array=0-2", str(path)])
    assert cli("track", "1_1").code == 0
    assert cli("track", "1").code == 0
    assert cli("cancel", "1_[0,2]").code == 0
    assert fake_slurm.calls("scancel")[0] == ["1_[0,2]"]
    assert fake_slurm.job("1_1")["state"] == "PENDING"


def test_tasks_tracked_one_by_one_form_one_array(cli, fake_slurm):
    path = write(cli, "hand.sh", HAND)
    for _ in range(2):
        cli.run(["sbatch", "--array=0-2", str(path)])
    first, second = fake_slurm.jobs()[0], fake_slurm.jobs()[3]
    a, b = first["array_job_id"], second["array_job_id"]
    assert (
        cli("track", f"{a}_1", "--label", "a=b").out == f"Tracking {a}_1 (@1, hand.sh): PENDING\n"
    )
    done = cli("track", f"{a}", "--name", "other")
    assert (done.code, done.out) == (6, "")
    assert "is already tracked as @1 (hand.sh): only --log can be changed" in done.err
    assert cli("track", f"{a}").out == f"Tracking {a} (@1 to @3, hand.sh): 3 tasks\n"
    # And the other way round.
    assert cli("track", f"{b}").out == f"Tracking {b} (@4 to @6, hand.sh): 3 tasks\n"
    assert cli("track", f"{b}_2").out == f"{b}_2 is already tracked as @6 (hand.sh)\n"
    assert cli.rows("SELECT submission_id, count(*) FROM jobs GROUP BY 1 ORDER BY 1") == [
        (1, 3),
        (2, 3),
    ]
    assert cli.rows("SELECT DISTINCT labels FROM jobs WHERE row < 4") == [('["a=b"]',)]
    assert len(cli.run_folders()) == 2
    done = cli("hold", f"{a}")
    assert (done.code, done.out) == (0, f"{a}_[0-2] is PENDING (JobHeldUser)\n")
    table = cli("status", "--format", "table").out
    assert len([line for line in table.splitlines() if line.startswith(f"{a}_")]) == 1, table
