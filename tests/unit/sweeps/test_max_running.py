"""max_running over several submissions, with a simulated Slurm."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.sweeps import plans


def test_jobs_that_a_new_submission_waits_for() -> None:
    sizes = enumerate([5, 1, 1])
    sent = [(str(number), tasks) for number, tasks in sizes]
    assert plans.jobs_to_wait_for(sent, 1, 3) == ("0",)
    assert plans.jobs_to_wait_for(sent, 2, 3) == ("1",), "1 waits for 0 by itself"
    assert plans.jobs_to_wait_for(sent, 7, 3) == ("1", "2")
    assert plans.jobs_to_wait_for(sent, 1, 8) == ()
    assert plans.jobs_to_wait_for([], 1, 1) == ()


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), max_size=12),
    most=st.integers(1, 7),
    data=st.data(),
)
def test_never_more_run_and_all_run(sizes: list[int], most: int, data: st.DataObject) -> None:
    """Submissions come, start and end in any order that Slurm may choose."""
    waits: dict[str, set[str]] = {}
    left: dict[str, int] = {}
    running: dict[str, int] = {}
    coming = list(enumerate(sizes))
    while coming or any(left.values()):
        ready = [
            job_id
            for job_id, tasks in left.items()
            if tasks > running[job_id]
            and running[job_id] < most
            and not any(left[other] for other in waits[job_id])
        ]
        steps = [("send", "")] if coming else []
        steps += [("start", job_id) for job_id in ready]
        steps += [("end", job_id) for job_id, count in running.items() if count]
        step, job_id = data.draw(st.sampled_from(steps))
        if step == "send":
            number, size = coming.pop(0)
            sent = [(job_id, tasks) for job_id, tasks in left.items() if tasks]
            waits[str(number)] = set(plans.jobs_to_wait_for(sent, size, most))
            left[str(number)], running[str(number)] = size, 0
        elif step == "start":
            running[job_id] += 1
        else:
            running[job_id] -= 1
            left[job_id] -= 1
        assert sum(running.values()) <= most
