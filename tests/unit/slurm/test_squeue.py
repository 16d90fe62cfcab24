"""Parsing of squeue's output of three releases."""

import datetime
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import jobs
from orchestrator.slurm import squeue

AT = datetime.datetime(2026, 11, 21, 8, 40, tzinfo=datetime.UTC)


def ours(name, job_id, stdout_path):
    return ".zoo98765" in name


def read(recorded, when):
    result = list(squeue.parse(recorded.lines(f"squeue-{when}.txt"), ours))
    return {seen.name.partition(".")[0]: seen for seen in result}, result


def test_command():
    assert squeue.command()[:-1] == ["squeue", "--me", "-h", "-a", "-t", "all", "-O"]
    assert squeue.command()[-1].startswith("JobArrayID:\x1f,JobID:\x1f,State:\x1f,exit_code")
    assert squeue.command()[-1].endswith("STDOUT:\x1f,Reason:\x1f,Name:0")


def test_running_jobs(recorded):
    by_name, _ = read(recorded, "live")
    runs = by_name["cancelled"]
    assert runs.state is jobs.JobState.RUNNING
    assert (runs.reason, runs.exit_code, runs.ended_at) == (None, None, None)
    assert runs.started_at is not None
    assert runs.submitted_at is not None
    assert runs.time_limit_seconds == 600
    assert runs.stdout_path == f"/home/alice/runs/{runs.name}/{runs.job_id}.out"
    assert (runs.source, runs.restart_count) == ("squeue", 0)
    assert (runs.partition, runs.account, runs.qos) == ("gpu", "proj", "normal")
    scavenger = by_name["preempted"]
    assert (scavenger.nodes, scavenger.gpus) == (2, 2)


def test_pending_jobs(recorded):
    by_name, result = read(recorded, "live")
    held = by_name["held"]
    assert (held.state, held.reason) == (jobs.JobState.PENDING, "JobHeldUser")
    assert (held.started_at, held.ended_at, held.node_list) == (None, None, None)
    assert held.time_limit_seconds == 93840
    assert by_name["never"].reason == "PartitionTimeLimit"
    # The scheduler's guess of a start is no start.
    assert all(seen.started_at is None for seen in result if seen.state == "PENDING")


def test_each_array_task_is_one_observation(recorded):
    _, result = read(recorded, "live")
    array = [seen for seen in result if seen.name.startswith("array.")]
    assert sorted(seen.array_task_id for seen in array) == [1, 3, 4, 5, 10, 13, 16]
    for seen in array:
        assert seen.job_id == f"{seen.array_job_id}_{seen.array_task_id}"
        assert seen.stdout_path == f"/home/alice/runs/{seen.name}/{seen.job_id}.out"
        assert seen.gpus == 1
    waiting = [seen for seen in array if seen.state == "PENDING"]
    assert {seen.raw_job_id for seen in waiting} == {waiting[0].array_job_id}


def test_ends(recorded):
    by_name, _ = read(recorded, "later")

    def end(name):
        seen = by_name[name]
        return seen.state.value, seen.exit_code, seen.exit_signal

    assert end("success") == ("COMPLETED", 0, 0)
    assert by_name["success"].gpus == 4
    assert by_name["success"].node_list == "n[1-2]"
    assert end("exit3") == ("FAILED", 3, 0)
    assert end("exit137") == ("FAILED", 137, 0)
    assert end("killed") == ("FAILED", 0, 9)
    assert end("no_log")[0::2] == ("FAILED", 53)
    assert end("timeout")[0::2] == ("TIMEOUT", 15)
    assert by_name["timeout"].reason == "TimeLimit"
    assert end("cancelled")[0::2] == ("CANCELLED", 15)
    # squeue prints JobHeldUser: once it waited for that.
    assert by_name["cancelled_waiting"].reason is None
    assert by_name["exit3"].ended_at is not None
    assert by_name["cancelled_waiting"].started_at is None
    refused = by_name["bad_constraints"]
    assert (refused.state, refused.reason) == (jobs.JobState.FAILED, "BadConstraints")
    assert (refused.started_at, refused.time_limit_seconds) == (None, None)


def test_attempts(recorded):
    by_name, _ = read(recorded, "later")
    special = by_name["special_exit"]
    assert (special.state, special.restart_count) == (jobs.JobState.SPECIAL_EXIT, 1)
    # The earlier attempt's exit code is still printed; it is not this attempt's.
    assert (special.exit_code, special.started_at) == (None, None)
    assert special.reason == "job requeued in held state"
    assert by_name["requeued"].restart_count == 1
    assert by_name["suspended"].state is jobs.JobState.SUSPENDED


def test_failures_in_the_grace_time_of_a_preemption(recorded):
    by_name, _ = read(recorded, "preempted")
    ends = {name: (seen.state.value, seen.raw_state) for name, seen in by_name.items()}
    # Steps with SIGTERM; scripts that exit with 143, 1 and 0.
    raw = "FAILED" if recorded.release < (24, 5) else "PREEMPTED"
    assert ends["step143"] == ends["step1"] == ("PREEMPTED", raw)
    success = "COMPLETED" if recorded.release < (24, 5) else "PREEMPTED"
    assert ends["step0"] == (success, success)
    # Without a step: Slurm ended it after the grace time.
    assert ends["batch"] == ("PREEMPTED", "PREEMPTED")
    # PreemptMode=SUSPEND; it failed after it had been resumed.
    assert ends["suspended"] == ("FAILED", "FAILED")
    assert ends["undisturbed"] == ("CANCELLED", "CANCELLED")
    if raw == "FAILED":
        codes = [by_name[name].exit_code for name in ("step143", "step1")]
        assert codes == [143, 1]


def test_lines_that_are_not_selected_are_not_parsed(recorded):
    asked = []

    def keep(name, job_id, stdout_path):
        asked.append(name)
        return False

    odd = []
    lines = recorded.lines("squeue-live.txt")
    assert list(squeue.parse(lines, keep, odd.append)) == []
    assert "foreign a|b  ü" in asked
    assert odd == []


def line(**columns):
    values = dict.fromkeys(squeue._FIELDS, "") | {
        "JobArrayID": "7",
        "JobID": "7",
        "State": "RUNNING",
        "Name": "a.zoo98765",
    }
    return squeue.DELIMITER.join((values | columns).values())


def test_names_may_contain_anything():
    (seen,) = squeue.parse([line(Name="a\x1fb|.zoo98765 ")], ours)
    assert seen.name == "a\x1fb|.zoo98765 "


def test_gpus_without_gpu_accounting():
    row = {"tres-alloc": "cpu=2,node=2", "NumNodes": "2"}
    (seen,) = squeue.parse([line(**row, **{"tres-per-node": "gres/gpu:4"})], ours)
    assert seen.gpus == 8
    (seen,) = squeue.parse([line(**row, **{"tres-per-node": "N/A"})], ours)
    assert seen.gpus == 0


def test_an_unknown_state_is_not_an_end():
    (seen,) = squeue.parse([line(State="HIBERNATING", exit_code="3:0")], ours)
    assert (seen.state, seen.raw_state) == (jobs.JobState.UNKNOWN, "HIBERNATING")
    assert seen.exit_code is None


def test_lines_are_parsed_one_by_one():
    def endless():
        while True:
            yield line(Name="foreign")
            yield line()

    assert len(list(islice(squeue.parse(endless(), ours), 3))) == 3


columns = st.text(alphabet=st.characters(exclude_characters="\x1f\n"), max_size=20)


COUNT = len(squeue._FIELDS)


@given(st.lists(columns, min_size=COUNT, max_size=COUNT) | st.lists(columns))
def test_any_line_is_parsed_or_reported_as_invalid(parts):
    odd = []
    text = squeue.DELIMITER.join(parts)
    result = list(squeue.parse([text], lambda *line: True, odd.append))
    assert bool(result) + len(odd) == (1 if text.strip() else 0)


@given(st.fixed_dictionaries({name: columns for name in squeue._FIELDS[2:]}))
def test_odd_columns_of_a_known_job_never_raise(values):
    (seen,) = squeue.parse([line(**values)], lambda *line: True)
    assert seen.job_id == "7"


def test_the_default_log_of_array_tasks_on_22_05() -> None:
    columns = {"JobArrayID": "4_2", "JobID": "7", "STDOUT": "/home/alice/slurm-7.out"}
    (row,) = squeue.parse([line(**columns)], lambda *columns: True)
    assert row.stdout_path == "/home/alice/slurm-4_2.out"


@pytest.mark.parametrize(
    ("pattern", "job_id", "path"),
    [
        ("/r/%x/%5j%%.out", "7", "/r/a.zoo98765/00007%.out"),
        ("/r/%A_%a.out", "9_4", "/r/9_4.out"),
        # The number of a pending task is not known yet.
        ("/r/%j.out", "9_[4]", None),
        ("/r/%N.out", "7", None),
        ("slurm-%j.out", "7", None),
    ],
)
def test_log_paths(pattern, job_id, path):
    (row,) = squeue.parse([line(JobArrayID=job_id, STDOUT=pattern)], ours)
    assert row.stdout_path == path
