"""The client: command lines and error messages."""

import datetime

import pytest

from orchestrator import errors, jobs
from orchestrator.slurm import failures, sbatch, squeue
from orchestrator.slurm.client import Client

SINCE = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def stub(answer, seen=None):
    def run(argv, timeout_seconds, environ):
        if seen is not None:
            seen.append((list(argv), timeout_seconds))
        return answer

    return run


def test_a_missing_command_of_slurm():
    with pytest.raises(failures.MissingCommandError) as caught:
        Client(environ={"PATH": "/nonexistent"}).config()
    assert str(caught.value) == (
        "scontrol could not be started: No such file or directory. On a cluster, use a login node "
        "and put Slurm's commands on PATH (load the Slurm module)."
    )
    # Not for another cause: here an argument that is too long.
    with pytest.raises(errors.SlurmError) as caught:
        failures.run(["true", "x" * 200_000], 10, {"PATH": "/usr/bin:/bin"})
    assert str(caught.value) == "true could not be started: Argument list too long."


def test_each_failure_has_its_error(recorded):
    outages = recorded.answers("outages.txt")
    kinds = {name: type(failures.failure(answer)) for name, answer in outages.items()}
    assert kinds.pop("no-accounting sacct") is failures.AccountingDisabled
    assert kinds.pop("dbd-down sbatch") is type(None)
    # `scontrol ping` prints DOWN to stdout.
    assert kinds.pop("hung ping") is kinds.pop("ctld-down ping") is errors.SlurmError
    assert set(kinds.values()) == {failures.Unreachable}
    # scontrol write batch_script fails with exit code 0.
    assert outages["ctld-down batch"].returncode == 0
    kinds = {
        name: sbatch.classify(answer).kind
        for name, answer in outages.items()
        if name.endswith("sbatch")
    }
    assert kinds == {
        "hung sbatch": sbatch.OutcomeKind.AMBIGUOUS,
        "dbd-down sbatch": sbatch.OutcomeKind.ACCEPTED,
        "ctld-down sbatch": sbatch.OutcomeKind.NOT_SENT_RETRY,
        "munge-down sbatch": sbatch.OutcomeKind.NOT_SENT_RETRY,
    }


def test_sentences(make_answer):
    def sentence(argv, rc=1, stderr="", **overrides):
        return str(failures.failure(make_answer(argv, rc, stderr=stderr, **overrides)))

    assert sentence(["squeue"], timed_out=True, seconds=60.0) == (
        "squeue timed out after 60 s. Slurm is busy or down. Nothing is lost; try again later."
    )
    away = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    assert sentence(["squeue"], stderr=away) == (
        "squeue could not reach slurmctld: slurm_load_jobs error: Unable to contact slurm "
        "controller (connect failure). Nothing is lost; try again later, or ask the site's "
        "administrators."
    )
    database = "sacct: error: Problem talking to the database: Connection refused\n"
    assert sentence(["sacct"], 0, database).startswith("sacct could not reach slurmdbd: Problem ")
    assert sentence(["sacct"], 1, "Slurm accounting storage is disabled\n") == (
        "this cluster has no accounting (sacct: Slurm accounting storage is disabled); job states "
        "come only from squeue and the exit records"
    )
    assert sentence(["sacct", "-o", "a\x1fb"], 1, "sacct: fatal: bad\x1b[2J\n") == (
        "sacct failed with exit code 1: bad[2J. To see more, run the same command: "
        "'sacct' '-o' 'a\\x1fb'"
    )


def test_partial_output_of_a_failed_squeue_is_not_used(make_answer):
    good = squeue.DELIMITER.join(["7", "7", "RUNNING", *[""] * 16, "a.t"])
    bad = make_answer(["squeue"], 1, good, stderr="slurm_load_jobs error: Socket timed out\n")
    client = Client(environ={}, run=stub(bad))
    with pytest.raises(failures.Unreachable):
        client.squeue(lambda *line: True)


def test_squeue_skips_other_jobs_and_invalid_lines(make_answer, caplog):
    foreign = squeue.DELIMITER.join(["8", "8", "PENDING", *["x" * 50] * 16, "foreign"])
    mine = squeue.DELIMITER.join(["7", "7", "RUNNING", *[""] * 16, "a.t"])
    stdout = "\n".join(["not a line", foreign, mine, ""])
    client = Client(environ={}, run=stub(make_answer(["squeue"], stdout=stdout)))
    jobs_seen = client.squeue(lambda name, *rest: name == "a.t")
    assert [(job.job_id, job.state) for job in jobs_seen] == [("7", jobs.JobState.RUNNING)]
    assert caplog.messages == ["squeue: 1 lines could not be parsed, the first: not a line"]


def test_sacct_has_its_own_time_limit(make_answer):
    seen = []
    answer = make_answer(["sacct"])
    client = Client(environ={}, run=stub(answer, seen), sacct_timeout_seconds=77.0)
    assert client.sacct(["1", "2"], SINCE) == []
    assert client.steps(["1"], SINCE) == {}
    assert client.by_name(["a.t"], SINCE) == []
    assert [call[0][-1] for call in seen] == ["1,2", "1", "--name=a.t"]
    assert {call[1] for call in seen} == {77.0}
    with pytest.raises(ValueError):
        client.sacct([], SINCE)


def test_an_unknown_job(make_answer):
    unknown = make_answer(["scontrol"], 1, stderr="slurm_load_jobs error: Invalid job id specified")
    client = Client(environ={}, run=stub(unknown))
    assert client.show_job("9") is None
    assert client.batch_script("9") is None
    client.cancel(["9"])
    # slurmctld knows the array 26 (24.11).
    task = make_answer(["scontrol"], 1, stdout="Job 26_9 not found\n")
    assert Client(environ={}, run=stub(task)).show_job("26_9") is None
    denied = make_answer(["scancel"], 210, stderr="scancel: error: Access/permission denied")
    with pytest.raises(errors.SlurmError, match="scancel failed with exit code 210"):
        Client(environ={}, run=stub(denied)).cancel(["9"])


def test_invalid_configuration_output(make_answer):
    client = Client(environ={}, run=stub(make_answer(["scontrol"], stdout="hello\n")))
    with pytest.raises(errors.SlurmError, match="scontrol show config` has no ClusterName"):
        client.config()


def test_commands_that_change_jobs(make_answer):
    seen = []
    client = Client(environ={}, run=stub(make_answer(["scontrol"]), seen))
    client.change("hold", ["1", "2_3"])
    client.change("requeuehold", ["4"])
    client.set_dependency("5", "")
    client.cancel(["12_3", "7"])
    assert [" ".join(argv) for argv, _ in seen] == [
        "scontrol hold 1,2_3",
        "scontrol requeuehold 4",
        "scontrol update jobid=5 dependency=",
        "scancel 12_3 7",
    ]


def test_many_jobs_are_cancelled_by_few_commands(make_answer):
    seen = []
    unknown = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"
    denied = "scancel: error: Kill job error on job id 8: Access/permission denied\n"

    def run(argv, timeout_seconds, environ):
        seen.append(argv)
        stderr = unknown + (denied if "1200" in argv else "")
        return make_answer(argv, 1, stderr=stderr)

    client = Client(environ={}, run=run)
    client.cancel([str(number) for number in range(1, 1001)])
    assert [(len(argv), argv[1], argv[-1]) for argv in seen] == [
        (501, "1", "500"),
        (501, "501", "1000"),
    ]
    with pytest.raises(errors.SlurmError, match="on job id 8: Access/permission denied") as caught:
        client.cancel(["1200"])
    assert "Invalid job id" not in str(caught.value)
    client.cancel([])
    assert len(seen) == 3
