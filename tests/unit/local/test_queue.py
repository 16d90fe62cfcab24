"""Selection of the next local jobs: a pure function of the queue."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.jobs import JobState
from orchestrator.local import queue, records

GPUS = ("0", "1", "2", "3")
ENTRY = records.Entry(
    number=1,
    task=None,
    raw_number=1,
    token="abcd00000001",
    name="x.abcd00000001",
    host="lap",
    slots=1,
    devices=GPUS,
    most_at_once=None,
    time_limit_seconds=None,
    may_requeue=True,
    stdout_path="/runs/x/local-1.out",
    stderr_path=None,
    submitted_at=0.0,
    queued_at=0.0,
)


def line(*changes: dict[str, object]) -> list[records.Entry]:
    return [
        dataclasses.replace(ENTRY, **{"number": number, **change})  # type: ignore[arg-type]
        for number, change in enumerate(changes, 1)
    ]


def started(entries: list[records.Entry]) -> dict[int, tuple[str, ...]]:
    return {entry.number: job for entry, job in queue.next_jobs(entries)}


def test_jobs_start_in_order() -> None:
    running = {"state": JobState.RUNNING, "given": ("1",)}
    assert started(line(running, {"slots": 2}, {}, {})) == {2: ("0", "2"), 3: ("3",)}
    assert started(line(running, {"slots": 4}, {})) == {}
    assert started(line({"held": True, "slots": 4}, {})) == {2: ("0",)}


def test_an_array_keeps_its_limit_and_lets_others_pass() -> None:
    task = {"number": 7, "most_at_once": 2}
    tasks = [{**task, "task": number} for number in range(4)]
    result = queue.next_jobs(line(*tasks, {}))
    assert [(entry.number, entry.task) for entry, _ in result] == [(7, 0), (7, 1), (5, None)]


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {
            "slots": st.integers(1, 4),
            "held": st.booleans(),
            "most_at_once": st.sampled_from([None, 1, 2]),
        }
    ),
    max_size=12,
)


@given(ENTRIES)
def test_slots_are_given_once_and_all_end_up_running(changes: list[dict[str, object]]) -> None:
    waiting = line(*changes)
    order: list[int] = []
    for _ in range(len(waiting) + 1):
        result = queue.next_jobs(waiting)
        taken = [slot for _, item in result for slot in item]
        assert len(taken) == len(set(taken)) and set(taken) <= set(GPUS)
        assert all(len(item) == entry.slots and not entry.held for entry, item in result)
        order += [entry.number for entry, _ in result]
        done = {entry.number for entry, _ in result}
        waiting = [entry for entry in waiting if entry.number not in done]
    assert order == sorted(order)
    assert all(entry.held for entry in waiting), "all others had their turn"


def stands(dependency: str, *others: records.Entry) -> queue.DependencyStatus:
    """Return the status of job 9's dependency, given these other jobs."""
    entry = dataclasses.replace(ENTRY, number=9, dependency=dependency)
    live = [other for other in others if other.state in records.LIVE]

    def look(job_id: str) -> list[records.Entry]:
        return [other for other in others if f"local-{other.number}" == job_id]

    return queue.dependency_status(entry, [*live, entry], look)


MET, OPEN, NEVER = queue.DependencyStatus
GOOD, BAD = JobState.COMPLETED, JobState.CANCELLED
WAITS, RUNS = JobState.PENDING, JobState.RUNNING


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("after", {WAITS: OPEN, RUNS: MET, GOOD: MET, BAD: MET}),
        ("afterany", {WAITS: OPEN, RUNS: OPEN, GOOD: MET, BAD: MET}),
        ("afterok", {WAITS: OPEN, RUNS: OPEN, GOOD: MET, BAD: NEVER}),
        ("afternotok", {WAITS: OPEN, RUNS: OPEN, GOOD: NEVER, BAD: MET}),
    ],
)
def test_a_dependency(kind: str, expected: dict[JobState, queue.DependencyStatus]) -> None:
    result = {
        state: stands(f"{kind}:local-1", dataclasses.replace(ENTRY, state=state))
        for state in expected
    }
    assert result == expected
    assert stands(f"{kind}:local-1") is NEVER, "nothing is known of it"


def test_dependencies_on_several() -> None:
    good, bad, runs = (
        dataclasses.replace(ENTRY, number=number, state=state)
        for number, state in enumerate((GOOD, BAD, RUNS), 1)
    )
    three = (good, bad, runs)
    assert stands("afterok:local-1,afternotok:local-2", *three) is MET
    assert stands("afterok:local-1:local-3", *three) is OPEN
    assert stands("afterok:local-1:local-2:local-3", *three) is NEVER
    assert stands("afterok:local-2?afterok:local-3", *three) is OPEN
    assert stands("afterok:local-2?afternotok:local-1", *three) is NEVER
    assert stands("afterok:local-2?afterok:local-1", *three) is MET
    # An array is over when all its tasks are, and good when all are.
    tasks = [dataclasses.replace(ENTRY, task=task, state=GOOD) for task in (0, 1)]
    assert stands("afterok:local-1_*", *tasks) is MET
    assert stands("afterok:local-1", *tasks, dataclasses.replace(runs, number=1, task=2)) is OPEN
    assert stands("afterok:local-1", *tasks, dataclasses.replace(bad, number=1, task=2)) is NEVER


def test_a_singleton_waits_for_earlier_jobs_of_its_name() -> None:
    earlier = dataclasses.replace(ENTRY, name="x.efgh00000002", state=RUNS)
    assert stands("singleton", earlier) is OPEN
    assert stands("singleton", dataclasses.replace(earlier, name="y.efgh00000002")) is MET
    assert stands("singleton", dataclasses.replace(earlier, number=10)) is MET
    assert stands("singleton", dataclasses.replace(earlier, state=GOOD)) is MET


def test_jobs_with_open_dependencies_are_overtaken() -> None:
    pending = line({"slots": 4, "dependency": "afterok:local-9"}, {}, {"held": True}, {"slots": 4})
    assert started(pending) == {2: ("0",)}
    reported = [reason for _, reason in queue.reasons(pending, lambda job_id: ())]
    assert reported == ["DependencyNeverSatisfied", "Resources", "JobHeldUser", "Priority"]


def test_tasks_at_the_limit_of_their_array() -> None:
    task = {"number": 7, "most_at_once": 1}
    tasks = [{**task, "state": RUNS, "given": ("0",)}, task, {**task, "held": True}]
    reported = [reason for _, reason in queue.reasons(line(*tasks, {}, {}), lambda job_id: ())]
    assert reported == ["None", "JobArrayTaskLimit", "JobHeldUser", "Resources", "Priority"]
