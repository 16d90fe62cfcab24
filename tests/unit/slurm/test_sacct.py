"""sacct's rows, as three releases printed them."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import jobs
from orchestrator.slurm import sacct

AT = datetime.datetime(2026, 11, 21, 8, 40, tzinfo=datetime.UTC)
SINCE = datetime.datetime(2026, 11, 21, 9, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))


def read(recorded, name):
    odd = []
    result = sacct.parse(recorded.lines(name), odd.append)
    # Only the second line of a foreign job's command line.
    assert set(odd) <= {"echo second line"}
    rows = {}
    for seen in result:
        rows.setdefault(seen.name.partition(".")[0], []).append(seen)
    return rows


def test_commands():
    assert sacct.command(SINCE, ids=["1", "2_3"]) == [
        "sacct",
        "-D",
        "-n",
        "-P",
        "--delimiter=\x1f",
        "-S",
        "2026-11-21T08:00:00",
        "-E",
        "now+7days",
        "-o",
        "JobID,JobIDRaw,State,ExitCode,DerivedExitCode,Submit,Start,End,TimelimitRaw,NNodes,"
        "ReqTRES,AllocTRES,Partition,Account,QOS,NodeList,Reason,JobName,SubmitLine",
        "-X",
        "-j",
        "1,2_3",
    ]
    assert "-X" not in sacct.command(SINCE, ids=["1"], steps=True)
    assert sacct.command(SINCE, names=["a.b", "c.d"])[-2:] == ["-X", "--name=a.b,c.d"]


@pytest.mark.parametrize("ids", [[], [""], [","], ["1,2"], ["all"], ["1"] * 201])
def test_ids_that_would_select_all_jobs_are_refused(ids):
    with pytest.raises(ValueError):
        sacct.command(SINCE, ids=ids)


@pytest.mark.parametrize("names", [[], [""], ["a,b"]])
def test_names_that_would_select_all_jobs_are_refused(names):
    with pytest.raises(ValueError):
        sacct.command(SINCE, names=names)


def test_ends(recorded):
    rows = read(recorded, "sacct.txt")

    def end(name):
        seen = rows[name][-1]
        return seen.state.value, seen.exit_code, seen.exit_signal

    assert end("success") == ("COMPLETED", 0, 0)
    assert end("exit3") == ("FAILED", 3, 0)
    # This release or the script reports it correctly: 128 is missing.
    assert end("exit137") == ("FAILED", 137 if recorded.release >= (25, 11) else 9, 0)
    assert end("killed") == ("FAILED", 0, 9)
    assert end("timeout") == ("TIMEOUT", 0, 0)
    assert end("no_log") == ("FAILED", 0, 53)
    success = rows["success"][0]
    assert (success.gpus, success.nodes, success.node_list) == (4, 2, "n[1-2]")
    assert success.time_limit_seconds == 600
    assert "--comment=zoo987650001" in success.submit_line
    assert rows["cancelled"][0].raw_state == "CANCELLED by 2001"
    assert rows["cancelled_by_root"][0].raw_state == "CANCELLED by 0"
    for name in ("cancelled_waiting", "bad_constraints"):
        never = rows[name][0]
        assert (never.started_at, never.node_list) == (None, None)
        assert never.ended_at is not None
    # The derived exit code shows a failed step.
    assert rows["step_failed"][0].step_exit_code == 5
    assert rows["out_of_memory"][0].step_exit_signal == 125


def test_attempts_are_numbered_in_their_order(recorded):
    rows = read(recorded, "sacct.txt")
    first, second = rows["requeued"][:2]
    assert (first.row_number, second.row_number) == (0, 1)
    assert (first.state, first.job_id) == (jobs.JobState.REQUEUED, second.job_id)
    assert first.submitted_at < second.submitted_at
    if recorded.release > (22, 5):
        # On 22.05 the suspended job beside it kept it from being preempted that day.
        assert [(seen.state, seen.row_number) for seen in rows["preempted"]] == [
            (jobs.JobState.PREEMPTED, 0),
            (jobs.JobState.RUNNING, 1),
        ]


def test_array_tasks(recorded):
    rows = read(recorded, "sacct.txt")["array"]
    assert [seen.array_task_id for seen in rows if seen.state == "PENDING"] == [10, 13, 16]
    assert all(seen.job_id == f"{seen.array_job_id}_{seen.array_task_id}" for seen in rows)


def test_steps(recorded):
    rows = read(recorded, "sacct-steps.txt")
    killed = rows["out_of_memory"][0]
    assert (killed.state, killed.exit_code) == (jobs.JobState.FAILED, 1)
    assert killed.step_state is jobs.JobState.OUT_OF_MEMORY
    assert (killed.step_exit_code, killed.step_exit_signal) == (0, 125)
    failed = rows["step_failed"][0]
    assert (failed.state, failed.step_state) == (jobs.JobState.COMPLETED, jobs.JobState.FAILED)
    assert failed.step_exit_code == 5
    assert rows["held"][0].step_state is None
    plain = read(recorded, "sacct.txt")
    assert {name: len(row) for name, row in rows.items()} == {
        name: len(item) for name, item in plain.items()
    }


def test_a_command_line_of_several_lines_is_one_column():
    odd = []
    # As 24.11 prints srun's of our own scripts.
    commands = ("sbatch x", "srun bash -c # RANK\nexport A=1\n\nexec python3", "srun one")
    ids = ("7", "7.0", "7.1")
    columns = ["FAILED", "3:0", *[""] * (len(sacct.COLUMNS) - 5)]
    rows = [
        "\x1f".join([job_id, job_id, *columns, command])
        for job_id, command in zip(ids, commands, strict=True)
    ]
    (seen,) = sacct.parse("\n".join(rows).split("\n"), odd.append)
    assert (seen.submit_line, seen.step_exit_code, odd) == ("sbatch x", 3, [])


def test_a_step_without_its_job_is_invalid():
    odd = []
    columns = ["1.batch", "1.batch", *[""] * (len(sacct.COLUMNS) - 2)]
    assert sacct.parse(["\x1f".join(columns)], odd.append) == []
    assert len(odd) == 1


columns = st.text(alphabet=st.characters(exclude_characters="\x1f\n"), max_size=20)
ids = st.sampled_from(["7", "7.batch", "8", "8_[1-3]", "8_[1,...]", "8_2", "8_2.0"]) | columns


@given(
    st.lists(
        st.tuples(ids, st.lists(columns, min_size=18, max_size=18) | st.lists(columns)), max_size=5
    )
)
def test_any_line_is_parsed_or_reported_as_invalid(rows):
    odd = []
    lines = ["\x1f".join([job_id, *rest]) for job_id, rest in rows]
    result = sacct.parse(lines, odd.append)
    assert len(odd) <= sum(bool(line.strip()) for line in lines)
    for seen in result:
        same = [row.row_number for row in result if row.job_id == seen.job_id]
        assert sorted(same) == list(range(len(same)))
