"""Concurrent refreshes: no job is lost, duplicated or skipped."""

from __future__ import annotations

import signal

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

JOB = ("--name", "demo", "--", "train.py")
TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"


def submit(cli: command_line.CommandLine, *argv: str, **environ: str) -> None:
    (cli.folder / "train.py").touch()
    done = cli("submit", *(argv or JOB), **environ)
    assert done.code == 0, done.err


def test_a_submission_that_ends_during_a_refresh_is_not_set_back(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    # squeue is called while the second job is SUBMITTING and returns when it has its ID.
    fake_slurm.fail("sbatch", rc=0, stdout="2\n", delay_seconds=1.5, run_anyway=False)
    submitting = cli.start("submit", "--name", "second", "--", "train.py")
    states = "select state from jobs"
    cli.wait_until(lambda: ("SUBMITTING",) in cli.rows(states), "the second job's row")
    fake_slurm.fail("squeue", rc=0, delay_seconds=3.0)
    refreshing = cli.start("refresh")
    assert command_line.finish(submitting).code == 0
    assert command_line.finish(refreshing).code == 0
    ((state, job_id),) = cli.rows(
        "select state, job_id from jobs join submissions on submission_id = id "
        "where name = 'second'"
    )
    assert (state, job_id) == ("PENDING", "2")


@pytest.mark.both_databases
def test_after_an_interrupted_refresh_another_one_queries_slurm(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.fail("squeue", delay_seconds=20.0, rc=0)
    hung = cli.start("refresh")
    cli.wait_until(lambda: fake_slurm.calls("squeue"), "squeue")
    hung.send_signal(signal.SIGINT)
    hung.communicate(timeout=20)
    assert hung.returncode == 130
    fake_slurm.heal()
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    assert "1 jobs changed" in cli("refresh").err
    assert cli.rows("select state from jobs") == [("FAILED",)]


def test_another_slurm_conf_has_its_own_key(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli, SLURM_CONF="/etc/slurm/slurm.conf")
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    assert cli("refresh").code == 0
    assert cli.rows("select state from jobs") == [("FAILED",)]


@pytest.mark.both_databases
def test_the_refresh_that_detects_the_end_reads_the_end_of_the_log(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    spec = cli.spec(
        '[job]\nname = "a"\n[launch]\nlauncher = "python"\n'
        'command = "echo Epoch Throughput: 5.500 images/second"\n'
    )
    fake_slurm.run_jobs()
    submit(cli, str(spec))
    fake_slurm.wait_for(1, "COMPLETED")
    assert cli("refresh").err.splitlines()[-1] == "1 jobs changed, 1 metrics read"
    assert cli.rows("select name, value from metrics") == [("throughput", 5.5)]


def test_a_job_requeued_after_its_end_fails_between_two_refreshes(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "COMPLETED")
    cli("refresh")
    assert cli.rows("select state, attempt from jobs") == [("COMPLETED", 0)]
    fake_slurm.requeue(1, "COMPLETED")
    fake_slurm.set_state(1, "RUNNING")
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    cli("refresh")
    assert cli.rows("select state, attempt, exit_code from jobs") == [("FAILED", 1, 3)]


def test_a_duplicate_that_ended_between_two_refreshes_is_adopted(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    grace = {"ORCHESTRATOR_SUBMIT_GRACE_SECONDS": "1"}
    (cli.folder / "train.py").touch()
    fake_slurm.fail("sbatch", rc=1, stderr=TIMED_OUT)
    assert cli("submit", *JOB, **grace).code == 5
    assert cli("wait", "@1", **grace).code == 1
    assert cli.rows("select state, settled from jobs") == [("NOT_SUBMITTED", 1)]
    # The request was in slurmctld's queue after all.
    (call,) = fake_slurm.calls("sbatch")
    cli.run(["sbatch", *call])
    fake_slurm.set_state(1, "COMPLETED")
    cli("refresh")
    assert cli.rows("select state, job_id from jobs") == [("COMPLETED", "1")]


def test_unknown_pattern_is_reported_before_the_submission(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    done = cli("submit", "--pattern", "olivvia", *JOB)
    assert done.code == 3
    assert done.err == (
        'Error: flags train.py: metrics.patterns: no pattern "olivvia". Did you mean "olivia"?\n'
        "1 problem; nothing was done.\n"
    )
    assert not fake_slurm.calls("sbatch")


def test_an_unchanged_queue_changes_nothing(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    cli("refresh")
    before = cli.rows("select version from jobs")
    assert cli("refresh").err.splitlines()[-1] == "0 jobs changed, 0 metrics read"
    assert cli.rows("select version from jobs") == before


def test_next_refresh_stores_a_missing_failure_cause(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    refused = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    fake_slurm.fail("sbatch", rc=1, stderr=refused)
    assert cli("submit", *JOB).code == 5
    assert cli("refresh").code == 0
    assert cli.rows("select state, cause from jobs") == [
        ("PENDING", None),
        ("NOT_SUBMITTED", "bad_qos"),
    ]
