"""Transitions of jobs for given evidence: cases of the fault matrix, or measured."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import Any

import pytest

from orchestrator import jobs, tracking
from orchestrator.jobs import JobState
from tests import builders

T0 = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
GRACE_SECONDS = 120.0


def at(seconds: float) -> datetime.datetime:
    return T0 + datetime.timedelta(seconds=seconds)


def job(**fields: Any) -> jobs.Job:
    values = {"row": 7, "name": "digits", "state": JobState.PENDING, "created_at": T0}
    return builders.make_job(**{**values, "job_id": "41", "raw_job_id": "41", **fields})


def row(state: JobState, **fields: Any) -> tracking.Observation:
    values: dict[str, Any] = {
        "source": "squeue",
        "name": "digits.abcd12345678",
        "job_id": "41",
        "raw_job_id": "41",
        "state": state,
        "raw_state": str(state),
    }
    if fields.get("source") == "sacct" and state in jobs.TERMINAL:
        values["ended_at"] = at(50)
    return tracking.Observation(**{**values, **fields})


def decide(
    of: jobs.Job,
    *,
    now: float = 60,
    squeue_at: float | None = None,
    sacct_queried: bool = True,
    accounting: bool = True,
    **evidence: Any,
) -> tracking.Transition:
    values: dict[str, Any] = {"grace_seconds": GRACE_SECONDS, **evidence}
    return tracking.decide(
        of,
        tracking.Evidence(
            squeue_at=at(now if squeue_at is None else squeue_at),
            sacct_queried=sacct_queried,
            accounting=accounting,
            now=at(now),
            **values,
        ),
    )


def after(of: jobs.Job, transition: tracking.Transition) -> jobs.Job:
    return dataclasses.replace(of, **transition.changes)  # type: ignore[arg-type]


def test_running_in_squeue() -> None:
    transition = decide(job(), squeue=(row(JobState.RUNNING, started_at=at(5), node_list="n1"),))
    now = after(job(), transition)
    assert (now.state, now.started_at, now.node_list) == (JobState.RUNNING, at(5), "n1")
    assert [event.detail for event in transition.events] == ["PENDING -> RUNNING on n1"]
    assert not now.settled


def test_live_squeue_beats_a_late_terminal_row_of_sacct() -> None:
    old = row(JobState.PREEMPTED, source="sacct", started_at=at(5))
    running = job(state=JobState.RUNNING, started_at=at(5))
    transition = decide(running, squeue=(row(JobState.PENDING),), sacct=(old,))
    now = after(running, transition)
    assert (now.state, now.attempt, now.started_at) == (JobState.PENDING, 1, None)
    assert transition.attempts[0].number == 0
    assert [event.kind for event in transition.events] == ["attempt", "state"]


def test_sacct_row_of_an_earlier_attempt_does_not_end_the_newest() -> None:
    second = job(state=JobState.RUNNING, attempt=1, started_at=at(40), restart_count=1)
    old = row(JobState.PREEMPTED, source="sacct", started_at=at(5), row_number=0)
    transition = decide(second, sacct=(old,))
    assert after(second, transition).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("sacct_code", "record_code", "expected"), [(9, 137, 137), (3, 3, 3), (1, 0, 1), (0, 0, 0)]
)
def test_exit_code_of_the_record_corrects_sacct_only_where_both_fit(
    sacct_code: int, record_code: int, expected: int
) -> None:
    closing = row(JobState.FAILED, source="sacct", exit_code=sacct_code, exit_signal=0)
    record = row(JobState.FAILED, source="record", exit_code=record_code)
    now = after(job(), decide(job(), sacct=(closing,), exit_record=record))
    assert (now.exit_code, now.settled) == (expected, True)


def test_exit_code_of_squeue_corrects_sacct() -> None:
    # 24.11, a batch file with `exit 137`: squeue 137:0, sacct 9:0. `kill -9 $$` is 0:9 in both.
    closing = row(JobState.FAILED, source="sacct", exit_code=9, exit_signal=0)
    shown = row(JobState.FAILED, exit_code=137, exit_signal=0)
    transition = decide(job(), squeue=(shown,), sacct=(closing,))
    assert (transition.attempts[-1].exit_code, transition.changes["settled"]) == (137, True)
    earlier = after(job(), decide(job(), squeue=(shown,)))
    assert earlier.exit_code == 137
    # The exit code of the earlier attempt does not apply to a later one.
    assert after(earlier, decide(earlier, sacct=(closing,))).exit_code == 137
    second = dataclasses.replace(closing, row_number=1)
    assert after(earlier, decide(earlier, sacct=(closing, second))).exit_code == 9
    killed = dataclasses.replace(closing, exit_code=0, exit_signal=9)
    now = after(earlier, decide(earlier, sacct=(killed,)))
    assert (now.exit_code, now.exit_signal) == (0, 9)


def test_state_of_the_step_shows_a_memory_kill() -> None:
    closing = row(JobState.FAILED, source="sacct", exit_code=1, step_state=JobState.OUT_OF_MEMORY)
    now = after(job(), decide(job(), sacct=(closing,)))
    assert (now.state, now.raw_state) == (JobState.OUT_OF_MEMORY, "FAILED")


def test_terminal_in_squeue_is_shown_and_still_waits_for_its_accounts() -> None:
    now = after(job(), decide(job(), squeue=(row(JobState.TIMEOUT),)))
    assert (now.state, now.settled) == (JobState.TIMEOUT, False)
    now = after(job(), decide(job(), squeue=(row(JobState.TIMEOUT),), accounting=False))
    assert (now.state, now.settled) == (JobState.TIMEOUT, True)


def test_forgotten_by_slurm_without_accounting_ends_by_its_record() -> None:
    record = row(JobState.FAILED, source="record", exit_code=3, exit_signal=0)
    transition = decide(job(), accounting=False, sacct_queried=False, exit_record=record)
    now = after(job(), transition)
    assert (now.state, now.exit_code, now.settled) == (JobState.FAILED, 3, True)


def test_a_clock_in_doubt_gives_nothing_up() -> None:
    month = 30 * 24 * 3600
    doubtful = {"now": month, "grace_seconds": math.inf}
    running = job(state=JobState.RUNNING, started_at=at(5), misses=9, missing_since=at(10))
    assert after(running, decide(running, **doubtful)).state is JobState.RUNNING
    lost = job(state=JobState.LOST, misses=9, missing_since=at(10))
    ended = job(state=JobState.COMPLETED, ended_at=at(10), observed_at=at(10))
    for case in (lost, ended):
        assert not after(case, decide(case, **doubtful)).settled
        assert after(case, decide(case, now=month)).settled
    unknown = job(
        state=JobState.SUBMIT_UNKNOWN,
        job_id=None,
        grace_since=at(1),
        misses=9,
        missing_since=at(10),
    )
    assert after(unknown, decide(unknown, **doubtful)).state is JobState.SUBMIT_UNKNOWN
    assert after(unknown, decide(unknown, now=month)).state is JobState.NOT_SUBMITTED


def test_lost_needs_answers_and_time_and_a_second_source() -> None:
    running = job(state=JobState.RUNNING, started_at=at(5))
    for second in (60, 70, 130, 179):
        running = after(running, decide(running, now=second, sacct_queried=False))
        assert running.state is JobState.RUNNING
    unasked = after(running, decide(running, now=200, sacct_queried=False))
    assert unasked.state is JobState.RUNNING
    transition = decide(running, now=200)
    lost = after(running, transition)
    assert (lost.state, lost.settled) == (JobState.LOST, False), "sacct may be late"
    late = row(JobState.TIMEOUT, source="sacct", started_at=at(5), ended_at=at(65))
    assert after(lost, decide(lost, now=900, sacct=(late,))).state is JobState.TIMEOUT
    forgotten = after(lost, decide(lost, now=2 * 24 * 3600))
    assert (forgotten.state, forgotten.settled) == (JobState.LOST, True)
    assert transition.events[0].detail == (
        "5 results of squeue over 140 s did not list it; "
        "sacct has no end of it, and there is no exit record"
    )


def test_a_runaway_row_of_sacct_does_not_keep_a_job_alive() -> None:
    running = job(state=JobState.RUNNING, misses=5, missing_since=at(0))
    runaway = row(JobState.RUNNING, source="sacct")
    assert after(running, decide(running, now=200, sacct=(runaway,))).state is JobState.LOST


def test_job_with_a_reused_id_is_lost_at_once() -> None:
    now = after(job(), decide(job(), reused=True))
    assert now.state is JobState.LOST
    assert now.reason == (
        "Slurm has assigned job ID 41 to another job; "
        "sacct has no end of it, and there is no exit record"
    )


def test_a_job_that_comes_back_is_not_lost() -> None:
    lost = job(state=JobState.LOST, settled=True)
    now = after(lost, decide(lost, squeue=(row(JobState.RUNNING, started_at=at(5)),)))
    assert (now.state, now.settled, now.misses) == (JobState.RUNNING, False, 0)


# --- submissions without a reply of sbatch ---


def unknown(**fields: Any) -> jobs.Job:
    values: dict[str, Any] = {
        "job_id": None,
        "raw_job_id": None,
        "state": JobState.SUBMIT_UNKNOWN,
        "grace_since": T0,
    }
    return job(**{**values, **fields})


def test_a_living_submitter_is_left_alone() -> None:
    assert decide(unknown(state=JobState.SUBMITTING), submitter_alive=True) == tracking.Transition()


def test_a_dead_submitter_begins_the_search() -> None:
    submitting = unknown(state=JobState.SUBMITTING, grace_since=None)
    now = after(submitting, decide(submitting, now=60))
    assert (now.state, now.grace_since) == (JobState.SUBMIT_UNKNOWN, at(60))


def test_adopted_at_once_by_the_token() -> None:
    transition = decide(unknown(), now=1, squeue=(row(JobState.PENDING, submitted_at=at(0)),))
    now = after(unknown(), transition)
    assert (now.job_id, now.state, now.submitted_at) == ("41", JobState.PENDING, at(0))
    assert transition.events[0].detail == "job 41, found by its token"


def test_adopted_by_the_claim_when_squeue_has_forgotten_it() -> None:
    record = row(JobState.COMPLETED, source="record", exit_code=0)
    now = after(unknown(), decide(unknown(), owner="41", exit_record=record, accounting=False))
    assert (now.job_id, now.state) == ("41", JobState.COMPLETED)


def test_an_adopted_job_is_not_missing_any_more() -> None:
    missing = unknown(misses=2, missing_since=at(1))
    adopted = after(missing, decide(missing, squeue=(row(JobState.PENDING),)))
    assert (adopted.misses, adopted.missing_since) == (0, None)
    next_look = after(adopted, decide(adopted, now=600))
    assert (next_look.state, next_look.misses) == (JobState.PENDING, 1)


def test_two_jobs_under_one_token_the_owner_is_ours() -> None:
    first = row(JobState.PENDING, job_id="40", raw_job_id="40")
    second = row(JobState.RUNNING)
    transition = decide(unknown(), squeue=(first, second), owner="41")
    assert after(unknown(), transition).job_id == "41"
    assert transition.events[1].detail == (
        "also with this token: 40; the task lock lets only one job run"
    )


@pytest.mark.parametrize(
    "refused",
    [
        row(JobState.FAILED, reason="BadConstraints", started_at=at(3), ended_at=at(3)),
        row(JobState.FAILED, source="sacct", reason=None),
    ],
    ids=["squeue", "sacct"],
)
def test_the_record_of_a_refused_request_is_not_adopted(refused: tracking.Observation) -> None:
    seen = {"squeue" if refused.source == "squeue" else "sacct": (refused,)}
    now = after(unknown(), decide(unknown(), **seen))
    assert (now.state, now.job_id) == (JobState.NOT_SUBMITTED, None)
    assert (now.reason or "").startswith("Slurm refused it")


def test_a_job_that_failed_on_its_node_is_adopted() -> None:
    failed = row(JobState.FAILED, source="sacct", started_at=at(3), node_list="n1", exit_code=3)
    now = after(unknown(), decide(unknown(), sacct=(failed,)))
    assert (now.state, now.job_id, now.exit_code) == (JobState.FAILED, "41", 3)


def test_not_submitted_only_after_several_answers_over_the_grace() -> None:
    sought = unknown()
    for second in (10, 20, 60, 129):
        sought = after(sought, decide(sought, now=second))
        assert sought.state is JobState.SUBMIT_UNKNOWN
    ended = after(sought, decide(sought, now=131))
    assert (ended.state, ended.settled) == (JobState.NOT_SUBMITTED, True)
    assert ended.reason == (
        "Slurm does not have the job: 5 results of squeue over 121 s did not list it"
    )


def test_a_moment_still_to_come_was_written_by_an_early_clock_and_is_not_waited_for() -> None:
    sought = unknown(grace_since=at(600), missing_since=at(600), misses=1)
    sought = after(sought, decide(sought, now=10))
    assert sought.grace_since == at(10)
    for second in (20, 30):
        sought = after(sought, decide(sought, now=second))
        assert (sought.state, sought.missing_since) == (JobState.SUBMIT_UNKNOWN, at(20))
    assert after(sought, decide(sought, now=141)).state is JobState.NOT_SUBMITTED
    lost = job(missing_since=at(600), misses=1)
    assert after(lost, decide(lost, now=10)).missing_since == at(10)


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.COMPLETING])
def test_an_end_stays_when_slurmctld_comes_back_with_an_older_state(state: JobState) -> None:
    ended = job(state=JobState.COMPLETED, started_at=at(5), ended_at=at(30), settled=True)
    back = row(state, started_at=at(5), restart_count=0)
    assert decide(ended, squeue=(back,)) == tracking.Transition(changes={"settled": False})
    # Later changes in Slurm are recorded nevertheless: another final state, or a new attempt.
    reopened = dataclasses.replace(ended, settled=False)
    failed = row(JobState.NODE_FAIL, started_at=at(5), ended_at=at(50), restart_count=0)
    assert after(reopened, decide(reopened, squeue=(failed,))).state is JobState.NODE_FAIL
    again = row(JobState.PENDING, restart_count=1)
    now = after(reopened, decide(reopened, squeue=(again,)))
    assert (now.state, now.attempt) == (JobState.PENDING, 1)


def test_two_answers_are_too_few_however_far_apart() -> None:
    sought = unknown()
    sought = after(sought, decide(sought, now=10))
    assert after(sought, decide(sought, now=1000)).state is JobState.SUBMIT_UNKNOWN


def test_a_late_ghost_is_adopted_even_after_the_transition() -> None:
    ended = unknown(state=JobState.NOT_SUBMITTED, settled=True)
    now = after(ended, decide(ended, now=500, squeue=(row(JobState.RUNNING, started_at=at(490)),)))
    assert (now.job_id, now.state, now.settled) == ("41", JobState.RUNNING, False)


# --- several records under one token, several attempts ---


def ghost(state: JobState, job_id: str = "42", **fields: Any) -> tracking.Observation:
    return row(state, job_id=job_id, raw_job_id=job_id, **fields)


def test_another_job_is_not_taken_for_the_known_one() -> None:
    done = job(state=JobState.COMPLETED, started_at=at(5), observed_at=at(30))
    transition = decide(done, squeue=(ghost(JobState.RUNNING, started_at=at(50)),), owner="41")
    assert after(done, transition).state is JobState.COMPLETED


def test_owner_file_decides_which_of_two_jobs_runs() -> None:
    waiting = job(observed_at=at(30))
    rows = (row(JobState.FAILED, exit_code=75), ghost(JobState.RUNNING, started_at=at(50)))
    transition = decide(waiting, squeue=rows, owner="42")
    now = after(waiting, transition)
    assert (now.job_id, now.state) == ("42", JobState.RUNNING)
    assert transition.events[0].detail == "the job is 42, not 41: both have its token"


def test_an_id_that_slurm_never_showed_gives_way_to_the_token() -> None:
    noise = job(job_id="1234", raw_job_id="1234")
    now = after(noise, decide(noise, squeue=(row(JobState.PENDING),)))
    assert (now.job_id, now.state) == ("41", JobState.PENDING)


def test_late_row_of_an_earlier_attempt_does_not_end_a_pending_attempt() -> None:
    second = job(state=JobState.PENDING, attempt=1, restart_count=1)
    old = row(JobState.PREEMPTED, source="sacct", started_at=at(5), ended_at=at(30))
    assert after(second, decide(second, sacct=(old,))).state is JobState.PENDING


def test_the_record_names_its_attempt() -> None:
    first = job(state=JobState.RUNNING, started_at=at(5))
    record = row(JobState.FAILED, source="record", exit_code=3, restart_count=1)
    transition = decide(first, exit_record=record, accounting=False)
    assert after(first, transition).attempt == 1
    assert [attempt.number for attempt in transition.attempts] == [0, 1]


def test_a_bad_end_stays_open_until_its_steps_are_known() -> None:
    closing = row(JobState.FAILED, source="sacct", exit_code=1)
    transition = decide(job(), sacct=(closing,), steps_known=False)
    now = after(job(), transition)
    assert (now.state, now.settled) == (JobState.FAILED, False)


@pytest.mark.parametrize(
    ("state", "seen", "expected"),
    [
        (JobState.COMPLETED, row(JobState.COMPLETED), False),
        (JobState.COMPLETED, row(JobState.RUNNING, restart_count=1), True),
        (JobState.COMPLETED, row(JobState.FAILED, restart_count=1), True),
        (JobState.COMPLETED, ghost(JobState.RUNNING), False),
        (JobState.NOT_SUBMITTED, row(JobState.COMPLETED), True),
        (JobState.NOT_SUBMITTED, row(JobState.FAILED, reason="BadConstraints"), False),
        (JobState.LOST, row(JobState.RUNNING), True),
    ],
)
def test_news_of_a_settled_job(state: JobState, seen: tracking.Observation, expected: bool) -> None:
    assert tracking.is_news(job(state=state, settled=True), [seen]) is expected


def test_the_exact_exit_code_of_an_earlier_attempt_is_kept() -> None:
    exact = jobs.Attempt(number=0, state=JobState.FAILED, exit_code=137)
    attempt = jobs.Attempt(number=0, state=JobState.FAILED, exit_code=9, node_list="n1")
    assert tracking.with_exact_exit_code(exact, attempt) == dataclasses.replace(
        attempt, exit_code=137
    )
    assert tracking.with_exact_exit_code(None, attempt) == attempt


@pytest.mark.parametrize(
    ("state", "code", "step", "message"),
    [
        (
            JobState.COMPLETED,
            0,
            (3, 0),
            ["a step ended with exit code 3:0, the script itself with 0:0"],
        ),
        (
            JobState.FAILED,
            1,
            (3, 0),
            ["a step ended with exit code 3:0, the script itself with 1:0"],
        ),
        (JobState.FAILED, 3, (3, 0), []),
        # sacct up to 25.05 prints 137 as 9.
        (JobState.FAILED, 137, (9, 0), []),
        (JobState.FAILED, 137, (0, 9), []),
        (JobState.COMPLETED, 0, (None, None), []),
        (JobState.TIMEOUT, 0, (0, 15), []),
    ],
)
def test_a_failed_step_is_reported_once(state, code, step, message):
    live = job(state=JobState.RUNNING, started_at=at(5), observed_at=at(10))
    ended = row(
        state,
        source="sacct",
        exit_code=code,
        exit_signal=0,
        started_at=at(5),
        ended_at=at(50),
        step_exit_code=step[0],
        step_exit_signal=step[1],
        step_state=JobState.FAILED,
    )
    transition = decide(live, sacct=(ended,))
    assert [event.detail for event in transition.events if event.kind == "note"] == message
    known = dataclasses.replace(live, **transition.changes)
    again = decide(known, sacct=(ended,))
    assert [event for event in again.events if event.kind == "note"] == []
