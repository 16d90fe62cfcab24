"""The client: commands are put together, failures become sentences."""

import datetime
import tracemalloc

import pytest

from orchestrator import errors, jobs, slurm
from orchestrator.slurm import squeue

SINCE = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def stub(answer, seen=None):
    def run(argv, timeout_seconds, environ):
        if seen is not None:
            seen.append((list(argv), timeout_seconds))
        return answer

    return run


def lines_of(lines, answer):
    def stream(argv, timeout_seconds, environ, on_line):
        for line in lines:
            on_line(line)
        return answer

    return stream


def test_failures_are_told_apart(recorded):
    outages = recorded.answers("outages.txt")
    kinds = {name: type(slurm.failure(answer)) for name, answer in outages.items()}
    assert kinds.pop("no-accounting sacct") is slurm.AccountingDisabled
    assert kinds.pop("dbd-down sbatch") is type(None)
    # `scontrol ping` says DOWN on stdout.
    assert kinds.pop("hung ping") is kinds.pop("ctld-down ping") is errors.SlurmError
    assert set(kinds.values()) == {slurm.Unreachable}
    # scontrol write batch_script fails with exit code 0.
    assert outages["ctld-down batch"].returncode == 0
    sbatch = {
        name: slurm.classify_sbatch(answer).kind
        for name, answer in outages.items()
        if name.endswith("sbatch")
    }
    assert sbatch == {
        "hung sbatch": slurm.SbatchKind.AMBIGUOUS,
        "dbd-down sbatch": slurm.SbatchKind.ACCEPTED,
        "ctld-down sbatch": slurm.SbatchKind.NOT_SENT_RETRY,
        "munge-down sbatch": slurm.SbatchKind.NOT_SENT_RETRY,
    }


def test_sentences(make_answer):
    def sentence(argv, rc=1, stderr="", **more):
        return str(slurm.failure(make_answer(argv, rc, stderr=stderr, **more)))

    assert sentence(["squeue"], timed_out=True, seconds=60.0) == (
        "squeue was given up after 60 s. Slurm is busy or away; nothing is lost, try again later."
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
        "this cluster keeps no accounts (sacct: Slurm accounting storage is disabled); states "
        "come from squeue and from the exit records alone"
    )
    assert sentence(["sacct", "-o", "a\x1fb"], 1, "sacct: fatal: bad\x1b[2J\n") == (
        "sacct failed with exit code 1: bad[2J. Run the same command by hand to see more: "
        "'sacct' '-o' 'a\\x1fb'"
    )


def test_squeue_believes_no_half_answer(make_answer):
    good = squeue.DELIMITER.join(["7", "7", "RUNNING", *[""] * 15, "a.t"])
    bad = make_answer(["squeue"], 1, stderr="slurm_load_jobs error: Socket timed out\n")
    client = slurm.Client(environ={}, stream=lines_of([good], bad))
    with pytest.raises(slurm.Unreachable):
        client.squeue(lambda *line: True)


def test_squeue_of_a_crowd_takes_no_memory(make_answer, caplog):
    foreign = squeue.DELIMITER.join(["8", "8", "PENDING", *["x" * 50] * 15, "foreign"])
    mine = squeue.DELIMITER.join(["7", "7", "RUNNING", *[""] * 15, "a.t"])

    def crowd():
        yield "not a line"
        for _ in range(20_000):
            yield foreign
        yield mine

    client = slurm.Client(environ={}, stream=lines_of(crowd(), make_answer(["squeue"])))
    tracemalloc.start()
    found = client.squeue(lambda name, *rest: name == "a.t")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(seen.job_id, seen.state) for seen in found] == [("7", jobs.JobState.RUNNING)]
    assert peak < 1_000_000
    assert caplog.messages == ["squeue: 1 lines not understood, the first: not a line"]


def test_sacct_asks_with_its_own_time_limit(make_answer):
    seen = []
    answer = make_answer(["sacct"])
    client = slurm.Client(environ={}, run=stub(answer, seen), sacct_timeout_seconds=77.0)
    assert client.sacct(["1", "2"], SINCE) == []
    assert client.steps(["1"], SINCE) == {}
    assert client.by_name(["a.t"], SINCE) == []
    assert [call[0][-1] for call in seen] == ["1,2", "1", "--name=a.t"]
    assert {call[1] for call in seen} == {77.0}
    with pytest.raises(ValueError):
        client.sacct([], SINCE)


def test_a_job_that_slurm_does_not_know(make_answer):
    unknown = make_answer(["scontrol"], 1, stderr="slurm_load_jobs error: Invalid job id specified")
    client = slurm.Client(environ={}, run=stub(unknown))
    assert client.show_job("9") is None
    assert client.show_job_text("9") is None
    assert client.batch_script("9") is None
    client.cancel("9", "a.t")
    # slurmctld knows the array 26 (24.11).
    task = make_answer(["scontrol"], 1, stdout="Job 26_9 not found\n")
    assert slurm.Client(environ={}, run=stub(task)).show_job("26_9") is None
    denied = make_answer(["scancel"], 210, stderr="scancel: error: Access/permission denied")
    with pytest.raises(errors.SlurmError, match="scancel failed with exit code 210"):
        slurm.Client(environ={}, run=stub(denied)).cancel("9", "a.t")


def test_config_that_makes_no_sense(make_answer):
    client = slurm.Client(environ={}, run=stub(make_answer(["scontrol"], stdout="hello\n")))
    with pytest.raises(errors.SlurmError, match="scontrol show config was not understood"):
        client.config()


def test_many_jobs_are_cancelled_by_few_calls(make_answer):
    seen = []
    unknown = "scancel: error: Kill job error on job id 7: Invalid job id specified\n"
    denied = "scancel: error: Kill job error on job id 8: Access/permission denied\n"

    def run(argv, timeout_seconds, environ):
        seen.append(argv)
        stderr = unknown + (denied if "1200" in argv else "")
        return make_answer(argv, 1, stderr=stderr)

    client = slurm.Client(environ={}, run=run)
    client.cancel_all([str(number) for number in range(1, 1001)])
    assert [(len(argv), argv[1], argv[-1]) for argv in seen] == [
        (501, "1", "500"),
        (501, "501", "1000"),
    ]
    with pytest.raises(errors.SlurmError, match="on job id 8: Access/permission denied") as caught:
        client.cancel_all(["1200"])
    assert "Invalid job id" not in str(caught.value)
    client.cancel_all([])
    assert len(seen) == 3
