"""Job IDs."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.jobs import naming
from orchestrator.slurm import job_ids


def test_forms():
    plain = job_ids.parse_job_id("123")
    assert (plain.text, plain.array_job_id, plain.step) == ("123", None, None)
    task = job_ids.parse_job_id("123_4.batch")
    assert (task.text, task.array_job_id, task.array_task_id, task.step) == (
        "123_4",
        "123",
        4,
        "batch",
    )
    assert job_ids.parse_job_id("4+1.0") == job_ids.JobId(text="4+1", step="0")


def test_waiting_tasks():
    rest = job_ids.parse_job_id("9_[1,3-5,10-16:3%2]")
    assert [task.text for task in job_ids.each_task(rest)] == [
        "9_1",
        "9_3",
        "9_4",
        "9_5",
        "9_10",
        "9_13",
        "9_16",
    ]
    assert [task.array_task_id for task in job_ids.each_task(rest)] == [1, 3, 4, 5, 10, 13, 16]


@pytest.mark.parametrize("raw", ["9_[1,3-...%2]", "9_[0-4294967295]", "9_[1-5:0]", "9_[1,,2]"])
def test_cut_and_invalid_task_lists(raw):
    with pytest.raises(ValueError, match="not a list of array tasks"):
        list(job_ids.each_task(job_ids.parse_job_id(raw)))


@pytest.mark.parametrize("raw", ["", "abc", "12 3", "9_[]", "1.foo", "1_", "²", "-1"])
def test_no_job_id(raw):
    with pytest.raises(ValueError, match="not a Slurm job ID"):
        job_ids.parse_job_id(raw)


numbers = st.integers(0, 67_043_328)


@given(numbers, st.integers(0, 4_000_000), st.sampled_from(["", ".batch", ".extern", ".0", ".17"]))
def test_round_trip(job, task, step):
    assert job_ids.parse_job_id(f"{job}{step}").text == str(job)
    result = job_ids.parse_job_id(f"{job}_{task}{step}")
    assert result.text == f"{job}_{task}"
    assert (result.array_task_id, result.step) == (task, step[1:] or None)


@given(numbers, st.sets(st.integers(0, 500), min_size=1))
def test_waiting_tasks_round_trip(job, tasks):
    raw = f"{job}_[{','.join(map(str, sorted(tasks)))}%5]"
    result = job_ids.each_task(job_ids.parse_job_id(raw))
    assert [task.array_task_id for task in result] == sorted(tasks)


@given(st.text())
def test_other_text_is_refused_or_read(raw):
    try:
        job_ids.parse_job_id(raw)
    except ValueError as problem:
        assert "not a Slurm job ID" in str(problem)


@given(st.sets(st.integers(0, 300)))
def test_folded_tasks_are_read_back(tasks: set[int]) -> None:
    folded = naming.fold_tasks(tasks)
    assert (set(job_ids.expand_tasks(folded)) if folded else set()) == tasks


def test_tasks_are_folded_as_slurm_does() -> None:
    assert naming.fold_tasks([9, 1, 3, 5, 4, 8]) == "1,3-5,8-9"


def test_a_long_list_of_tasks_is_several_arguments() -> None:
    assert job_ids.array_arguments("7", [0, 1, 2, 5]) == ["7_[0-2,5]"]
    scattered = range(0, 4_000_000, 400)
    words = job_ids.array_arguments("1234567890", scattered)
    assert max(map(len, words)) < 16 * 1024
    again = [task for word in words for task in job_ids.expand_tasks(word[12:-1])]
    assert again == list(scattered)


def test_too_many_tasks():
    with pytest.raises(ValueError, match="not a list of array tasks"):
        collections.deque(job_ids.expand_tasks(",".join(["0-4000000"] * 50)), maxlen=0)
