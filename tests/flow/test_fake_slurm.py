"""The output of the simulated Slurm commands can be parsed by our client."""

from __future__ import annotations

import datetime
import os
import subprocess

import pytest

from orchestrator import jobs
from orchestrator.processes import process
from orchestrator.slurm import failures, sbatch, variables
from orchestrator.slurm.client import Client


def client() -> Client:
    return Client(environ=variables.for_queries(os.environ))


def submit(tmp_path, body="exit 0", *options, name="demo.abcd12345678"):
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=4\n{body}\n")
    argv = sbatch.command(
        script, name, output=f"{tmp_path}/%j.out", comment="abcd12345678", extra=options
    )
    return process.run(argv, 20, variables.for_submission(os.environ))


def since():
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)


def squeue():
    return client().squeue(lambda name, *rest: name.endswith(".abcd12345678"))


def test_a_job_from_sbatch_to_its_log(fake_slurm, tmp_path):
    fake_slurm.run_jobs()
    outcome = sbatch.classify(submit(tmp_path, "echo $SLURM_JOB_NAME; exit 137"))
    assert (outcome.kind, outcome.job_id) == (sbatch.OutcomeKind.ACCEPTED, "1")
    fake_slurm.wait_for(1, "FAILED")
    (seen,) = squeue()
    assert (seen.state, seen.exit_code, seen.gpus, seen.nodes) == (jobs.JobState.FAILED, 137, 8, 2)
    assert seen.stdout_path == f"{tmp_path}/1.out"
    assert (tmp_path / "1.out").read_text() == "demo.abcd12345678\n"
    (row,) = client().sacct(["1"], since())
    # sacct 24.11 takes 128 off.
    assert (row.exit_code, row.node_list) == (9, "n[1-2]")
    assert "--comment=abcd12345678" in (row.submit_line or "")
    assert client().steps(["1"], since())["1"].step_state is jobs.JobState.FAILED
    assert client().batch_script("1") == (tmp_path / "job.sh").read_text()
    assert client().show_job("1")["JobName"] == "demo.abcd12345678"


def test_arrays_requeues_and_old_jobs(fake_slurm, tmp_path):
    submit(tmp_path, "exit 0", "--array=1,3-4")
    assert [seen.job_id for seen in squeue()] == ["1_1", "1_3", "1_4"]
    fake_slurm.set_state("1_3", "RUNNING")
    fake_slurm.requeue("1_3", "PREEMPTED")
    again = {seen.job_id: seen for seen in squeue()}["1_3"]
    assert (again.state, again.restart_count, again.started_at) == ("PENDING", 1, None)
    rows = client().sacct(["1_3"], since())
    assert [(row.state, row.row_number) for row in rows] == [("PREEMPTED", 0), ("PENDING", 1)]
    fake_slurm.forget("1_4")
    assert sorted(seen.job_id for seen in squeue()) == ["1_1", "1_3"]
    assert client().show_job("3") is None


def test_cancel_ignores_unknown_jobs(fake_slurm, tmp_path):
    submit(tmp_path)
    client().cancel(["999", "1"])
    (row,) = client().sacct(["1"], since())
    assert row.raw_state == f"CANCELLED by {os.getuid()}"


def test_lost_answers_and_an_unreachable_slurm(fake_slurm, tmp_path):
    text = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    fake_slurm.fail("sbatch", stderr=text, run_anyway=True)
    assert sbatch.classify(submit(tmp_path)).kind is sbatch.OutcomeKind.AMBIGUOUS
    assert [seen.job_id for seen in squeue()] == ["1"]
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    fake_slurm.fail("squeue", stderr=away)
    with pytest.raises(failures.Unreachable, match="squeue could not reach slurmctld"):
        squeue()
    fake_slurm.configure(AccountingStorageType="accounting_storage/none")
    with pytest.raises(failures.AccountingDisabled):
        client().sacct(["1"], since())
    assert not client().config().accounting


def test_the_command_line_of_sbatch_beats_the_directives(fake_slurm, tmp_path):
    answer = submit(tmp_path, "exit 0", "--nodes=1", "--hold")
    assert answer.returncode == 0, answer.stderr
    assert (fake_slurm.job(1)["nodes"], fake_slurm.job(1)["reason"]) == (1, "JobHeldUser")
    assert sbatch.classify(submit(tmp_path, "exit 0", "--bogus=1")).sentence == (
        "sbatch rejected the job: unrecognized option '--bogus=1'; "
        'Try "sbatch --help" for more information. Correct it and submit again.'
    )
    assert client().test_only("#!/bin/bash\n").endswith("on n1 in partition gpu")
    subprocess.run(["scontrol", "release", "1"], check=True)
    assert fake_slurm.calls("sbatch")[0][0] == "--parsable"
