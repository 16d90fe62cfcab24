"""plan and apply: exactly what was shown is done, once."""

from __future__ import annotations

import re
import signal
import threading

import pytest

from tests.flow.gpu_job import JOB, SWEEP

GRAPH = '[graph]\nname = "nightly"\n[graph.nodes.first]\nspec = "job.toml"\n'
AGAIN = "Nothing was done. Make a new plan: `orchestrator plan COMMAND`"


@pytest.fixture
def project(cli):
    (cli.folder / "train.py").write_text("print('step 1 loss 1.0')\n")
    cli.spec(JOB)
    cli.spec(SWEEP, "sweep.toml")
    cli.spec(GRAPH, "graph.toml")
    return cli


def plan_of(cli, *words, options=()):
    """Plan a command, and return the item of its JSON."""
    done = cli("plan", "--json", *options, *words)
    assert done.code == 0, done
    return done.items[0]


def submitted(fake_slurm):
    return [call for call in fake_slurm.calls("sbatch") if "--test-only" not in call]


def test_what_is_shown_is_submitted_once(project, fake_slurm):
    done = project("plan", "submit", "job.toml", "--time-limit", "1:00:00")
    *shown, command = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert shown == [
        "Submit demo: 2 nodes with 4 GPUs each, time limit 1:00:00, with code in its folder when "
        "it starts",
        "1 job, at most 8 GPU-hours",
        "To do it within 01:00:00:",
    ]
    assert submitted(fake_slurm) == []
    assert project.rows("SELECT row FROM jobs") == []
    assert project.run_folders() == []
    token = re.fullmatch(r"  orchestrator apply ([0-9a-f]{16})", command)[1]

    # It runs where it was planned.
    done = project("apply", token, cwd=project.home)
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    assert fake_slurm.job(1)["state"] == "PENDING"
    shown = project("show", "1", "--json").items[0]
    assert shown["provenance"]["argv"][1:] == ["submit", "job.toml", "--time-limit", "1:00:00"]

    done = project("apply", token)
    assert (done.code, done.out) == (6, "")
    assert re.fullmatch(
        rf"Error: plan {token} was applied at \S+, and a plan is applied only once. "
        r"`orchestrator status` shows the jobs\n",
        done.err,
    )
    assert len(submitted(fake_slurm)) == 1


@pytest.mark.parametrize(
    ("words", "actions", "jobs", "hours", "result"),
    [
        ("cancel 1", ["Cancel 1 (demo, PENDING)"], 1, 0.0, "1 is CANCELLED\n"),
        ("hold 1", ["Hold 1 (demo, PENDING)"], 1, 0.0, "1 is PENDING (JobHeldUser)\n"),
        (
            *("sweep submit sweep.toml --name grid", ["Submit 2 points of grid: lr0.1 ... lr0.01"]),
            *(2, 8.0, "Submitted 2 points of sweep grid (@1)\n"),
        ),
        (
            *("graph submit graph.toml", ["Submit first of graph nightly: 1 job"], 1, 4.0),
            "node\tkind\tstate\tjob_id\tafter\treason\trow\nfirst\tjob\tPENDING\t2\t\t\t@2\n",
        ),
    ],
)
def test_other_commands(project, fake_slurm, words, actions, jobs, hours, result):
    assert project("submit", "job.toml").code == 0
    before = project.rows(), len(fake_slurm.calls("scontrol"))
    planned = plan_of(project, *words.split())
    shown = [re.sub(r"-[0-9a-f]{8}\b", "", action) for action in planned["actions"]]
    assert (shown, planned["jobs"], planned["gpu_hours"]) == (actions, jobs, hours)
    assert (project.rows(), submitted(fake_slurm)) == (before[0], submitted(fake_slurm)[:1])
    assert not fake_slurm.calls("scancel")
    done = project("apply", planned["token"])
    assert (done.code, done.out) == (0, result), done
    assert project("apply", planned["token"]).code == 6


def test_apply_prints_json(project, fake_slurm):
    (project.folder / "run.sh").write_text("sleep 1\n")
    for words in (
        "submit run.sh",
        "submit run.sh -- --json",
        "sweep submit sweep.toml",
        "cancel 1",
    ):
        planned = plan_of(project, *words.split())
        assert project("apply", "--json", planned["token"]).items, words
    assert len(submitted(fake_slurm)) == 3


def test_commands_that_act_on_ended_jobs(project, fake_slurm):
    project("submit", "job.toml")
    project("sweep", "submit", "sweep.toml", "--name", "grid")
    for job_id in ("1", "2_0", "2_1"):
        fake_slurm.set_state(job_id, "FAILED", exit="1:0")
    assert project("refresh").code == 0
    for words in ("resubmit 1", "requeue 1", "sweep rerun grid"):
        planned = plan_of(project, *words.split())
        assert planned["gpu_hours"] == 4.0 * planned["jobs"], words
        done = project("apply", planned["token"])
        assert done.code == 0, (words, done)
    planned = plan_of(project, "sweep", "cancel", "grid")
    assert planned["actions"] == [
        "Submit no more points of sweep grid (@1)",
        "Cancel 5_[0-1] (grid, PENDING)",
    ]
    for words in ("sweep cancel grid", "release 1"):
        planned = plan_of(project, *words.split())
        assert project("apply", planned["token"]).code == 0, words


def test_a_changed_file_job_or_setting_makes_a_plan_void(project, fake_slurm):
    def refused(planned, reason, **environ):
        done = project("apply", planned["token"], **environ)
        assert (done.code, done.out) == (6, "")
        assert done.err == (f"Error: plan {planned['token']} is out of date: {reason}. {AGAIN}\n")

    planned = plan_of(project, "submit", "job.toml")
    (project.folder / "train.py").write_text("print('another program')\n")
    refused(planned, "file train.py has changed")

    planned = plan_of(project, "submit", "job.toml")
    project.spec(f"{JOB}# A comment.\n")
    refused(planned, "file job.toml has changed")
    project.spec(JOB.replace("30", "60"))
    refused(
        planned,
        "the spec of demo has changed; the batch script of demo has changed; "
        "file job.toml has changed",
    )

    planned = plan_of(project, "submit", "job.toml")
    refused(planned, "the configuration has changed", ORCHESTRATOR_MAX_SUBMIT_JOBS="3")
    assert project("apply", planned["token"]).code == 0
    assert len(submitted(fake_slurm)) == 1

    planned = plan_of(project, "cancel", "demo")
    fake_slurm.set_state(1, "RUNNING")
    assert project("refresh").code == 0
    refused(planned, "1 (@1) was PENDING and is RUNNING")
    assert fake_slurm.job(1)["state"] == "RUNNING"

    planned = plan_of(project, "requeue", "demo")
    fake_slurm.set_state(1, "RUNNING", minutes=600)
    assert project("refresh").code == 0
    reason = "it was to use at most 8 GPU-hours, and would use at most 80 GPU-hours"
    refused(planned, reason)


def test_an_expired_or_unknown_plan(project, fake_slurm):
    planned = plan_of(project, "submit", "job.toml", options=["--expires", "0s"])
    done = project("apply", planned["token"])
    assert done.code == 6
    assert re.fullmatch(
        rf"Error: plan {planned['token']} expired at \S+. {re.escape(AGAIN)}\n", done.err
    )
    done = project("apply", "nothing")
    assert (done.code, done.err) == (
        4,
        "Error: there is no plan 'nothing': `orchestrator plan COMMAND` makes one\n",
    )
    assert submitted(fake_slurm) == []


def test_budgets(project, fake_slurm):
    folder = project.home / ".config/orchestrator"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[agents]\nmax_gpu_hours = 6\nmax_gpu_hours_per_day = 10\n")
    (folder / "config.toml").chmod(0o600)
    # An option cannot raise the limit.
    for options in ([], ["--max-gpu-hours", "100"]):
        done = project("plan", "--json", *options, "submit", "job.toml", "--nodes", "4")
        reason = "over the budget: at most 8 GPU-hours are more than the limit of 6. "
        assert (done.code, done.err) == (6, f"Error: {reason}Nothing was done.\n")
        assert (done.items[0]["token"], done.items[0]["gpu_hours"]) == (None, 8.0)
    done = project("plan", "--max-gpu-hours", "3", "submit", "job.toml")
    assert (done.code, done.err) == (
        6,
        "Error: over the budget: at most 4 GPU-hours are more than the limit of 3. Nothing was "
        "done.\n",
    )
    assert "apply" not in done.out
    done = project("plan", "--max-gpu-hours", "nan", "submit", "job.toml")
    assert done.code == 2
    assert done.err.endswith("Invalid value for '--max-gpu-hours': 'nan' is not a number\n")
    done = project("plan", "submit", "job.toml", "--time-limit", "")
    assert done.code != 0

    first, second, third = (plan_of(project, "submit", "job.toml") for _ in range(3))
    assert project("apply", first["token"]).code == 0
    assert project("apply", second["token"]).code == 0
    used = (
        "over the budget: at most 4 GPU-hours, with 8 of the last 24 hours, are more than "
        "agents.max_gpu_hours_per_day = 10. Nothing was done.\n"
    )
    done = project("apply", third["token"])
    assert (done.code, done.out, done.err) == (6, "", f"Error: {used}")
    assert len(submitted(fake_slurm)) == 2
    assert len(project.run_folders()) == 2
    done = project("plan", "submit", "job.toml")
    assert (done.code, done.err) == (6, f"Error: {used}")
    # What uses no GPU is not limited.
    assert project("apply", plan_of(project, "cancel", "1")["token"]).code == 0


def test_starts_that_nobody_asks_for_are_counted(project, fake_slurm):
    words = (
        "submit",
        "job.toml",
        "--exclusive",
        "--set",
        "retry.max_retries=2",
        "--array-size",
        "3",
    )
    done = project("plan", *words)
    assert "".join(done.out.splitlines(keepends=True)[:2]) == (
        "Submit demo: 3 tasks, each with 2 nodes with 4 GPUs each, exclusive, time limit 30, at "
        "most 23 starts, with code in its folder when it starts\n"
        "3 jobs, an unknown number of GPU-hours\n"
    )


def test_a_batch_file_has_unknown_gpu_hours(project, fake_slurm):
    (project.folder / "big.sbatch").write_text("#!/bin/bash\n#SBATCH --gpus=512\nsleep 1\n")
    assert plan_of(project, "submit", "big.sbatch")["gpu_hours"] is None
    done = project("plan", "--max-gpu-hours", "1000", "submit", "big.sbatch")
    assert done.code == 6
    assert "over the budget: the GPU-hours of a job are not known" in done.err


def test_of_many_processes_one_applies_a_plan(project, fake_slurm):
    planned = plan_of(project, "submit", "job.toml")
    codes: list[int] = []

    def apply() -> None:
        codes.append(project("apply", planned["token"]).code)

    threads = [threading.Thread(target=apply) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0, 6, 6, 6, 6, 6]
    assert len(submitted(fake_slurm)) == 1
    assert len(project.run_folders()) == 1


def test_a_killed_application_is_completed_and_never_repeated(project, fake_slurm):
    planned = plan_of(project, "submit", "job.toml")
    fake_slurm.fail("sbatch", delay_seconds=30.0, rc=0, run_anyway=True)
    process = project.start("apply", planned["token"])
    project.wait_until(lambda: project.rows("SELECT state FROM jobs"), "the intent")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = project("apply", planned["token"])
    assert done.code == 6
    assert f"plan {planned['token']} was applied at" in done.err
    assert len(project.rows()) == 1


def test_only_commands_that_change_jobs_can_be_planned(project):
    for words in ("status", "schedule list", "tick", "plan submit job.toml", "submit --dry-run x"):
        done = project("plan", *words.split())
        assert done.code == 2, (words, done)
        command = done.err.splitlines()[-1].split("`")[1]
        assert done.err.splitlines()[-1] == (
            f"Error: `{command}` cannot be planned: only commands that submit, cancel or change "
            "jobs can"
        )


@pytest.mark.parametrize("options", [["--host", "other"], ["--state-dir", "elsewhere"]])
def test_options_of_the_group_precede_plan(project, options):
    """Otherwise the command could run on another host, or with a database without the plan."""
    done = project("--read-only", "plan", *options, "submit", "job.toml")
    assert done.code == 2
    assert "No such option" in done.err
    done = project("--read-only", "plan", "--", *options, "submit", "job.toml")
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        f"Error: {options[0]} is not a command; options of `orchestrator` precede `plan`"
    )


def test_a_plan_writes_no_file(project):
    done = project("plan", "submit", "job.toml", "--save-spec", "saved.toml")
    assert done.code == 2
    assert done.err.splitlines()[-1] == "Error: a plan writes no file: remove --save-spec"
    assert not (project.folder / "saved.toml").exists()


def test_read_only_allows_plans_but_not_to_apply_them(project, fake_slurm):
    done = project("--read-only", "plan", "--json", "submit", "job.toml")
    token = done.items[0]["token"]
    assert project("--read-only", "apply", token).code == 6
    assert submitted(fake_slurm) == []
    assert project("apply", token).code == 0


def test_a_plan_of_nothing(project):
    project("sweep", "submit", "sweep.toml", "--name", "grid")
    done = project("plan", "sweep", "resume", "grid")
    assert (done.code, done.out) == (6, "")
    assert done.err == (
        "Nothing left to submit of sweep grid (@1)\n"
        "Error: `sweep resume grid` has nothing to do, so there is no plan\n"
    )
