"""Causes from the final state, the exit code and the history."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import jobs
from orchestrator.diagnosis import final_states
from orchestrator.diagnosis.records import JobFacts
from orchestrator.jobs import JobState
from tests import builders

BEGIN = datetime.datetime(2026, 5, 1, 12, 0, 0, tzinfo=datetime.UTC)
ME, ROOT, BOB = "alice", "root", "bob"


def job_of(state: JobState, *, ran_seconds: int | None = 3723, **fields: object) -> jobs.Job:
    if ran_seconds is not None:
        ended_at = BEGIN + datetime.timedelta(seconds=ran_seconds)
        fields = {"started_at": BEGIN, "ended_at": ended_at, "node_list": "n4", **fields}
    return builders.make_job(state=state, created_at=BEGIN, **fields)


def explained(job: jobs.Job, **facts: object) -> tuple[str, str]:
    finding = final_states.finding(JobFacts(job=job, user=ME, **facts))  # type: ignore[arg-type]
    assert finding is not None
    return finding.cause, finding.summary


@pytest.mark.parametrize(
    ("job", "cause", "summary"),
    [
        (
            job_of(JobState.TIMEOUT, time_limit_seconds=3600),
            "time_limit",
            "the job was ended after 01:02:03 because of its time limit of 01:00:00",
        ),
        (
            job_of(JobState.NODE_FAIL),
            "node_fail",
            "node n4 failed, 01:02:03 after it started",
        ),
        (
            job_of(JobState.BOOT_FAIL, node_list="n[1-4]"),
            "node_fail",
            "one of the nodes n[1-4] could not be booted, 01:02:03 after it started",
        ),
        (
            job_of(JobState.PREEMPTED, partition="spot", qos="normal"),
            "preempted",
            "a job of higher priority preempted the job in partition spot with QOS normal, "
            "01:02:03 after it started",
        ),
        (
            job_of(JobState.OUT_OF_MEMORY),
            "oom_host",
            "the job's processes used more memory than it requested on n4, "
            "01:02:03 after it started",
        ),
        (
            job_of(JobState.DEADLINE, ran_seconds=None),
            "deadline",
            "the job reached its deadline while it was pending",
        ),
        (
            job_of(
                JobState.FAILED,
                exit_code=0,
                exit_signal=53,
                stdout_path="/r/1.out",
                reason="JobLaunchFailure",
            ),
            "launch_failed",
            "Slurm could not open the log (/r/1.out) or the working directory on n4, "
            "so there is no log",
        ),
        (
            job_of(JobState.FAILED, reason="JobLaunchFailure"),
            "launch_failed",
            "Slurm could not start the job on n4",
        ),
        (
            job_of(JobState.LOST, observed_at=None),
            "lost",
            "Slurm no longer knows the job, and its end is unknown",
        ),
        (
            job_of(JobState.NOT_SUBMITTED, ran_seconds=None),
            "not_submitted",
            "the job is not in Slurm",
        ),
    ],
    ids=lambda value: str(value.state) if isinstance(value, jobs.Job) else "",
)
def test_states(job: jobs.Job, cause: str, summary: str) -> None:
    assert explained(job) == (cause, summary)


@pytest.mark.parametrize(
    ("code", "number", "cause", "summary"),
    [
        (3, 0, "nonzero_exit", "the job ended with exit code 3"),
        (73, 0, "run_folder", "the compute node cannot see the run folder"),
        (
            75,
            0,
            "duplicate",
            "another job with the same token is running or has run: nothing was run",
        ),
        (78, 0, "setup_failed", "the environment could not be set up: see the log"),
        (126, 0, "missing_program", "the program could not be executed"),
        (127, 0, "missing_program", "the program was not found"),
        (132, 0, "illegal_instruction", "SIGILL ended the program"),
        (134, 0, "aborted", "SIGABRT ended the program"),
        (135, 0, "shared_memory", "SIGBUS ended the program"),
        (137, 0, "killed", "SIGKILL ended the program"),
        (139, 0, "segfault", "SIGSEGV ended the program"),
        (143, 0, "killed", "SIGTERM ended the program"),
        (168, 0, "nonzero_exit", "signal 40 ended the program: 168 = 128 + 40"),
        (0, 9, "killed", "SIGKILL ended the batch script"),
        (0, 11, "segfault", "SIGSEGV ended the batch script"),
        (255, 0, "nonzero_exit", "the job ended with exit code 255"),
    ],
)
def test_exit_codes(code: int, number: int, cause: str, summary: str) -> None:
    job = job_of(JobState.FAILED, exit_code=code, exit_signal=number)
    shown_cause, shown_summary = explained(job)
    assert shown_cause == cause
    assert shown_summary.startswith(summary)
    assert final_states.evidence(job).text == f"FAILED, exit code {code}:{number}"


@pytest.mark.parametrize(
    ("who", "asked", "started", "summary"),
    [
        (ME, True, True, "you cancelled it with orchestrator cancel at "),
        (None, True, True, "you cancelled it with orchestrator cancel at "),
        (
            *(ME, False, False),
            "you (alice) or your program cancelled it with scancel while it was pending",
        ),
        (
            *(ROOT, True, True),
            "root cancelled it: an administrator, or Slurm itself, 01:02:03 after it started",
        ),
        (BOB, False, True, "bob, an operator or a coordinator of the account, cancelled it"),
        (
            None,
            False,
            True,
            "it was cancelled, 01:02:03 after it started; Slurm does not report",
        ),
    ],
)
def test_who_cancelled(who: str | None, asked: bool, started: bool, summary: str) -> None:
    event = jobs.JobEvent(at=BEGIN, kind="cancel", source="user", detail="scancel was called")
    job = job_of(JobState.CANCELLED, ran_seconds=3723 if started else None)
    cause, shown_summary = explained(job, cancelled_by=who, events=(event,) if asked else ())
    assert cause == "cancelled"
    assert shown_summary.startswith(summary)


@pytest.mark.parametrize(
    ("scheduler", "ran_seconds", "fixes"),
    [
        (
            *("slurm", 60),
            (
                "continue from its last checkpoint, if it saves any: orchestrator requeue JOB"
                " (only for some minutes after its end)",
            ),
        ),
        (
            *("local", 60),
            ("continue from its last checkpoint, if it saves any: orchestrator requeue JOB",),
        ),
        ("slurm", None, ()),
    ],
)
def test_cancelled_job_can_continue(
    scheduler: str, ran_seconds: int | None, fixes: tuple[str, ...]
) -> None:
    job = job_of(JobState.CANCELLED, ran_seconds=ran_seconds, scheduler=scheduler)
    finding = final_states.finding(JobFacts(job=job, user=ME, cancelled_by=ME))
    assert finding is not None and finding.cures == fixes


def test_failed_prolog_looks_like_cancelled_by_root() -> None:
    job = job_of(JobState.CANCELLED)
    cause, summary = explained(job, cancelled_by=ROOT, script_started=False)
    assert cause == "launch_failed"
    assert summary.startswith("Slurm ended the job on n4 before its script began")
    waited = job_of(JobState.CANCELLED, ran_seconds=None)
    assert explained(waited, cancelled_by=ROOT, script_started=False)[0] == "cancelled"
    assert explained(job, cancelled_by=ROOT, script_started=True)[0] == "cancelled"


def test_no_cause_without_failure() -> None:
    waits = job_of(JobState.NOT_SUBMITTED, ran_seconds=None, resend_at=BEGIN)
    for job in (job_of(JobState.COMPLETED), job_of(JobState.RUNNING), waits):
        assert final_states.finding(JobFacts(job=job)) is None
    assert final_states.finding(JobFacts()) is None


def test_earlier_attempts() -> None:
    attempt = jobs.Attempt(
        number=0,
        state=JobState.PREEMPTED,
        node_list="n1",
        started_at=BEGIN,
        ended_at=BEGIN + datetime.timedelta(minutes=2),
    )
    job = job_of(JobState.RUNNING, attempt=1)
    facts = JobFacts(job=job, attempts=(attempt, jobs.Attempt(number=1, state=JobState.RUNNING)))
    assert final_states.earlier_attempts(facts) == (
        "attempt 0: PREEMPTED on n1, 00:02:00 after it started",
    )


# Recorded on 22.05, 24.11 and 26.05.
@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("bad_partition", "invalid partition specified: x; Batch job submission failed: In"),
        ("bad_partition", "User's group not permitted to use this partition"),
        ("bad_account", "Invalid account or account/partition combination specified"),
        ("bad_qos", "Invalid qos specification"),
        ("bad_resources", "Requested node configuration is not available"),
        ("bad_resources", "Memory specification can not be satisfied"),
        ("bad_resources", "Invalid feature specification"),
        ("bad_resources", "Invalid generic resource (gres) specification"),
        ("bad_resources", "Requested reservation is invalid"),
        ("bad_resources", "Requested time limit is invalid (missing or exceeds some limit)"),
        ("dependency", "Job dependency problem"),
        ("limit_reached", "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job v"),
        ("limit_reached", "QOSMaxNodePerJobLimit; Batch job submission failed: Job violates"),
        ("unavailable", "Required partition not available (inactive or drain)"),
        ("not_submitted", "slurmctld could not be reached"),
    ],
)
def test_rejections(cause: str, text: str) -> None:
    assert final_states.rejection_cause(f"Slurm refused the job: {text}") == cause
