"""Slurm rejects, is down, is slow or does not reply; Ctrl-C; unusual environments."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from orchestrator import config, jobs, specs
from orchestrator.controller.session import stores
from orchestrator.controller.submission import job_scripts, submit
from orchestrator.slurm import sbatch, variables
from orchestrator.slurm.client import Client
from tests import builders
from tests.flow import command_line
from tests.flow.conftest import COMMANDS

FAILED = "sbatch: error: Batch job submission failed: "
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
JOB = ("--name", "demo", "--", "train.py")


@pytest.mark.parametrize(
    ("rc", "stderr", "stdout", "message"),
    [
        (
            1,
            f"{FAILED}Invalid partition name specified\n",
            "",
            "Slurm refused the job: Batch job submission failed: Invalid partition name specified."
            " Correct it and submit again. (stored as @1)\n",
        ),
        (
            1,
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
            f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or "
            "time limits)\n",
            "",
            "Slurm refused the job: QOSMaxSubmitJobPerUserLimit; Batch job submission failed: "
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)."
            " You have reached your submit limit: submit again when some of your jobs have ended."
            " (stored as @1; `orchestrator resubmit --queue @1` "
            "submits it as soon as Slurm accepts it)\n",
        ),
        (
            255,
            "sbatch: unrecognized option '--hint=x'\n",
            "",
            "sbatch rejected the job: unrecognized option '--hint=x'. "
            "Correct it and submit again. (stored as @1)\n",
        ),
        (
            1,
            f"{FAILED}Unable to contact slurm controller (connect failure)\n",
            "",
            "sbatch could not reach slurmctld: Batch job submission failed: Unable to contact slurm"
            " controller (connect failure). Nothing was submitted. Submit again when slurmctld "
            "answers."
            " (stored as @1; `orchestrator resubmit --queue @1` "
            "submits it as soon as Slurm accepts it)\n",
        ),
    ],
    ids=["rejected", "rejected for now", "not sent", "away"],
)
def test_a_job_that_slurm_did_not_take(cli, fake_slurm, rc, stderr, stdout, message):
    fake_slurm.fail("sbatch", rc=rc, stderr=stderr, stdout=stdout)
    done = cli("submit", *JOB)
    assert (done.code, done.out) == (5, "")
    assert done.err == f"Error: {message}"
    assert cli.rows("SELECT state, settled, job_id FROM jobs") == [("NOT_SUBMITTED", 1, None)]
    assert len(fake_slurm.calls("sbatch")) == 1


@pytest.mark.parametrize(
    ("rc", "stderr", "stdout", "message"),
    [
        (
            1,
            f"{FAILED}Socket timed out on send/recv operation\n",
            "",
            "sbatch lost contact with slurmctld: Batch job submission failed: "
            "Socket timed out on send/recv operation",
        ),
        (0, "", "Welcome to the cluster\n", "sbatch printed no job ID: Welcome to the cluster"),
        (1, "sbatch: something new\n", "", "sbatch failed with exit code 1: something new"),
    ],
    ids=["timed out", "garbled", "unheard of"],
)
def test_an_answer_that_proves_nothing(cli, fake_slurm, rc, stderr, stdout, message):
    fake_slurm.fail("sbatch", rc=rc, stderr=stderr, stdout=stdout)
    done = cli("submit", *JOB)
    assert (done.code, done.out) == (5, "")
    assert done.err == (
        f"Error: {message}. Slurm may or may not have the job.\n"
        "The job is @1 in the database. Do not submit it again: "
        "`orchestrator status @1` looks for it in Slurm.\n"
    )
    assert cli.rows() == [(1, "SUBMIT_UNKNOWN")]
    assert len(fake_slurm.calls("sbatch")) == 1


def test_unprintable_output_gives_an_error_without_a_traceback(cli, fake_slurm):
    (cli.folder / "train.py").touch()
    words = "-m orchestrator submit --name demo --parsable -- train.py >/dev/full"
    done = cli.run(["sh", "-c", f"{sys.executable} {words}"])
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: No space left on device; the command may have succeeded anyway: check with "
        "`orchestrator status`\n"
    )
    assert [state for _, state in cli.rows()] == ["PENDING"]
    closed = cli.run(["sh", "-c", f"{sys.executable} -m orchestrator status >&-"])
    assert (closed.code, closed.err) == (0, "")


@pytest.mark.parametrize(
    "words", ["status", "show demo", "logs demo", "show nosuch", "logs --help", "hold"]
)
def test_closed_pipe_ends_the_command_quietly(cli, fake_slurm, words):
    (cli.folder / "train.py").touch()
    assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    # The reader has ended before the command begins to write.
    leave = "mkfifo fifo; exec 9<>fifo 8>fifo 9<&-"
    command = f"{sys.executable} -m orchestrator {words} >&8 2>&8"
    done = cli.run(["bash", "-c", f"{leave}; {command}; echo $?"])
    assert (done.out, done.err) == ("141\n", "")


def test_closed_pipe_with_closed_stderr(cli):
    leave = "mkfifo fifo; exec 9<>fifo 8>fifo 9<&-"
    command = f"{sys.executable} -m orchestrator --help >&8 2>&-"
    assert cli.run(["bash", "-c", f"{leave}; {command}; echo $?"]).out == "141\n"


@pytest.mark.parametrize("since", ["999999999999days", "0001-01-01", "soon", ""])
def test_a_time_that_is_none(cli, fake_slurm, since):
    done = cli("status", "--since", since)
    assert done.code == 2
    assert f"'{since}' is not a time: write 2026-11-20, 2026-11-20T10:05, " in done.err
    for option, message in (
        ("-t", "'' is not a state; states are "),
        ("-p", "'' contains an empty name"),
    ):
        done = cli("status", option, "")
        assert done.code == 2 and message in done.err


def test_unsatisfiable_dependency_is_reported(cli, fake_slurm):
    fake_slurm.run_jobs(False)
    for name in ("a", "b"):
        assert cli("submit", *JOB, "--name", name).code == 0
    for number in (1, 2):
        fake_slurm.set_state(number, "PENDING", reason="DependencyNeverSatisfied")
    done = cli("wait", "1", "2", "--timeout", "0")
    assert done.code == 124
    assert (
        "1, 2 can never start: a job it depends on did not end as required; cancel it "
        "(DependencyNeverSatisfied)\n"
    ) in done.err


def test_nothing_to_wait_for_is_no_success(cli, fake_slurm):
    for command in ("wait", "cancel"):
        done = cli(command, "--name", "nosuch")
        assert (done.code, done.err) == (4, "Error: no live job has the name or label nosuch\n")


@pytest.mark.parametrize(("command", "least"), [("wait", 0), ("hold", 0), ("doctor", 1)])
def test_invalid_number_of_seconds(cli, fake_slurm, command, least):
    done = cli(command, "--timeout", "nan")
    assert done.code == 2
    assert done.err.endswith(
        f"Invalid value for '--timeout': 'nan': must be a number of seconds, {least} or more\n"
    )


def test_a_name_that_reads_as_a_job_id(cli, fake_slurm):
    done = cli("submit", "--name", "7777", "--", "train.py")
    assert done.code == 3
    assert "job.name: looks like a job ID: start it with a letter" in done.err


def test_job_that_never_reached_slurm_is_not_submitted(cli, fake_slurm):
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    fake_slurm.fail("sbatch", stderr=f"{FAILED}Socket timed out on send/recv operation\n")
    grace = {"ORCHESTRATOR_SUBMIT_GRACE_SECONDS": "1"}
    assert cli("submit", *JOB, **grace).code == 5
    waited = cli("cancel", "@1")
    assert (waited.code, waited.out) == (6, "")
    assert waited.err == (
        "Error: @1 has no job ID yet (SUBMIT_UNKNOWN). `orchestrator status @1` looks for it in "
        "Slurm; repeat the command afterwards\n"
    )
    done = cli("wait", "@1", **grace)
    assert (done.code, done.out) == (1, "")
    assert "\nError: job @1 ended NOT_SUBMITTED: " in done.err
    assert len(fake_slurm.calls("sbatch")) == 1
    assert len(fake_slurm.calls("squeue")) >= 3


def test_an_adopted_job_has_its_log_path(cli, fake_slurm):
    fake_slurm.run_jobs()
    fake_slurm.fail("sbatch", rc=0, stdout="", run_anyway=True)
    done = cli("submit", "--name", "demo", "--wait", "--command", "echo here")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    assert cli("logs", "1").out.splitlines()[1:] == ["here"]


def context_of(cli):
    configuration = config.load(cli.environ, cli.folder)
    return builders.make_context(
        cli.folder,
        stores.Store(configuration.database),
        configuration=configuration,
        slurm=Client(environ=variables.for_queries(os.environ)),
        environ=os.environ,
    )


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "not taken"])
def test_sbatch_hangs(cli, fake_slurm, monkeypatch, taken):
    monkeypatch.setattr(sbatch, "TIMEOUT_SECONDS", 1.0)
    fake_slurm.fail("sbatch", delay_seconds=60, run_anyway=taken)
    spec = specs.load(None, flags={"job.name": "demo"}, program=["train.py"], folder=cli.folder)
    context = context_of(cli)
    with context.store:
        request = job_scripts.Request(spec=spec, source="flags")
        if taken:
            job = submit.submit(context, request)
            assert (job.job_id, job.state) == ("1", jobs.JobState.PENDING)
        else:
            with pytest.raises(submit.errors.SlurmError) as caught:
                submit.submit(context, request)
            assert str(caught.value).startswith(
                "sbatch timed out after 1 s. Slurm may or may not have the job.\n"
            )
    assert cli.rows() == [(1, "PENDING" if taken else "SUBMIT_UNKNOWN")]


def test_slurm_is_unreachable(cli, fake_slurm):
    assert cli("submit", *JOB).code == 0
    fake_slurm.fail("squeue", stderr=AWAY, times=2)
    failed = cli("refresh")
    assert (failed.code, failed.out) == (5, "")
    message = (
        "squeue could not reach slurmctld: slurm_load_jobs error: "
        "Unable to contact slurm controller (connect failure). "
        "Nothing is lost; try again later, or ask the site's administrators.\n"
    )
    assert re.fullmatch(
        rf"Error: Slurm has not responded since \S+: {re.escape(message)}", failed.err
    ), failed.err
    shown = cli("status", "--refresh")
    assert shown.code == 0
    assert "\tPENDING\t" in shown.out
    assert re.fullmatch(
        rf"Stale since \S+: Slurm does not respond: {re.escape(message)}", shown.err
    ), shown.err
    (item,) = cli("status", "--no-refresh", "--json").items
    assert item["stale_since"] is not None
    assert cli("refresh").code == 0
    (item,) = cli("status", "--no-refresh", "--json").items
    assert item["stale_since"] is None


def test_slurm_was_never_there(cli, fake_slurm):
    done = cli("submit", *JOB, PATH="/usr/bin:/bin", ORCHESTRATOR_SCHEDULER="slurm")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("Error: scontrol could not be started: No such file or directory.")
    assert (cli.rows(), cli.run_folders()) == ([], [])


def test_slow_commands_report_progress(cli, fake_slurm):
    fake_slurm.fail("sbatch", rc=0, stdout="1\n", delay_seconds=1.5)
    done = cli("submit", *JOB)
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    assert done.progress == ["Submitting (sbatch) ...\n"]
    fake_slurm.fail("squeue", rc=0, delay_seconds=1.5)
    assert cli("refresh").progress[0] == "Asking Slurm (squeue) ...\n"


def test_ctrl_c_leaves_the_job_alone(cli, fake_slurm):
    process = cli.start("submit", "--wait", *JOB)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "Submitted batch job 1 (@1, demo)\n"
    command_line.read_to(process.stderr, " 1 PENDING")
    os.kill(process.pid, signal.SIGINT)
    done = command_line.finish(process)
    assert (done.code, done.out, done.err) == (
        130,
        "",
        "The job goes on. Follow: orchestrator logs -f 1; wait: orchestrator wait 1; "
        "cancel: orchestrator cancel 1\n\nInterrupted.\n",
    )

    fake_slurm.set_state(1, "RUNNING")
    (folder,) = cli.run_folders()
    (folder / "1.out").write_text("one\n")
    process = cli.start("logs", "1", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    os.kill(process.pid, signal.SIGINT)
    done = command_line.finish(process)
    assert (done.code, done.out, done.err) == (130, "", "\nInterrupted.\n")
    assert fake_slurm.job(1)["state"] == "RUNNING"
    assert fake_slurm.calls("scancel") == []


def test_ctrl_c_while_sbatch_runs(cli, fake_slurm):
    fake_slurm.fail("sbatch", delay_seconds=60, run_anyway=True)
    process = cli.start("submit", *JOB)
    assert process.stderr is not None
    command_line.read_to(process.stderr, "Submitting (sbatch) ...")
    os.kill(process.pid, signal.SIGINT)
    done = command_line.finish(process)
    assert (done.code, done.out) == (130, "")
    assert done.err == (
        "sbatch was interrupted, so Slurm may or may not have the job. It is @1: "
        "`orchestrator status @1` looks for it in Slurm.\n"
        "\nInterrupted.\n"
    )
    assert cli.rows() == [(1, "SUBMITTING")]
    assert cli("status", "@1").out.splitlines()[1].split("\t")[:3] == ["1", "demo", "PENDING"]


def test_closed_stdout_ends_the_command_with_141(cli):
    with cli.start("config", "show") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(command_line.TIMEOUT_SECONDS) == 141


def test_files_are_private_whatever_the_umask(cli, fake_slurm):
    done = cli("submit", *JOB, prefix=["sh", "-c", 'umask 022 && exec "$@"', "sh"])
    assert done.code == 0
    (folder,) = cli.run_folders()
    cli.needs_file()
    places = [cli.state_dir, *cli.state_dir.iterdir(), cli.runs_dir, folder, *folder.iterdir()]
    assert len(places) >= 8
    for path in places:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), f"{path}: {mode:o}"


RECORDER = """\
#!/bin/sh
env -0 >> "$RECORDS/{name}"
exec "{commands}/{name}" "$@"
"""
HOSTILE = {
    "SBATCH_PARTITION": "evil",
    "SBATCH_WRAP": "touch CANARY",
    "SQUEUE_USERS": "bob",
    "SQUEUE_STATES": "FAILED",
    "SQUEUE_FORMAT": "%i",
    "SACCT_FORMAT": "JobID",
    "SLURM_CLUSTERS": "other",
    "SLURM_JOB_ID": "99",
    "SLURM_TIME_FORMAT": "relative",
    "SCONTROL_FUTURE": "1",
}
SECRETS = {"WANDB_API_KEY": "s3cret", "GITHUB_TOKEN": "s3cret", "DB_PASSWORD": "s3cret"}


def records_of(path: Path) -> dict[str, str]:
    pairs = path.read_bytes().decode().split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs if pair)


def test_the_environment_has_no_effect(cli, fake_slurm, tmp_path):
    fake_slurm.run_jobs()
    bin_folder, records = tmp_path / "bin", tmp_path / "records"
    bin_folder.mkdir()
    records.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        (bin_folder / name).write_text(RECORDER.format(name=name, commands=COMMANDS))
        (bin_folder / name).chmod(0o755)
    surroundings = {
        **HOSTILE,
        **SECRETS,
        "RECORDS": str(records),
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "TZ": "Asia/Tokyo",
        "LANG": "ja_JP.UTF-8",
        "LC_ALL": "ja_JP.UTF-8",
        "PATH": f"{bin_folder}{os.pathsep}{fake_slurm.environ['PATH']}",
    }
    spec = cli.spec(
        '[job]\nname = "demo"\n[launch]\nlauncher = "python"\n'
        f"command = '''env -0 > {records}/job'''\n"
        '[environment]\nvariables = { GITHUB_TOKEN = "meant" }\n'
    )
    done = cli("submit", spec, "--wait", **surroundings)
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    rows = cli("status", **surroundings).out.splitlines()
    assert rows[1].split("\t")[:3] == ["1", "demo", "COMPLETED"]
    assert re.search(r"\nSubmitted:   \S+\+09:00\n", cli("show", "1", **surroundings).out)
    assert fake_slurm.job(1)["partition"] == "gpu"

    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        seen = records_of(records / name)
        assert set(HOSTILE) & set(seen) <= {"SLURM_TIME_FORMAT"}
        assert seen["SLURM_CONF"] == "/etc/slurm/slurm.conf"
        if name == "sbatch":
            assert seen["TZ"] == "Asia/Tokyo"  # the job is the user's own
            assert not set(SECRETS) - {"GITHUB_TOKEN"} & set(seen)
        else:
            expected = {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
            assert {key: seen[key] for key in expected} == expected
    job = records_of(records / "job")
    assert job["GITHUB_TOKEN"] == "meant"
    assert "s3cret" not in json.dumps(job)
    assert {name for name in HOSTILE if name in job} == {"SLURM_JOB_ID"}
    assert job["SLURM_JOB_ID"] == "1"
    (folder,) = cli.run_folders()
    for path in folder.iterdir():
        assert "s3cret" not in path.read_text()
