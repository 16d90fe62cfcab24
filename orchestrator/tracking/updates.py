"""From an observation that is trusted to the changes of the job, its attempts and events."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking.records import Evidence, Observation
from orchestrator.tracking.transitions import Transition, event

_NOT_STARTED = frozenset({JobState.PENDING, JobState.REQUEUED, JobState.REQUEUE_HOLD})
_COPIED = (
    *("raw_job_id", "raw_state", "exit_code", "exit_signal", "partition", "account", "qos"),
    *("nodes", "gpus", "cpus", "node_list", "time_limit_seconds"),
    *("submitted_at", "started_at", "ended_at", "stdout_path"),
)
_OF_ATTEMPT = ("started_at", "ended_at", "exit_code", "exit_signal", "node_list", "cause")


def apply(
    job: jobs.Job,
    row: Observation,
    evidence: Evidence,
    sacct_rows: Sequence[Observation] = (),
    *,
    settled: bool,
) -> Transition:
    """Return what changes when `row` is stored; `sacct_rows` give the earlier attempts."""
    number = attempt_number(job, row)
    events: list[jobs.JobEvent] = []
    attempts: list[jobs.Attempt] = []
    base = job
    changes: dict[str, object] = {}
    if number > job.attempt:
        attempts.append(_closed_attempt(job, sacct_rows))
        changes = dict.fromkeys(_OF_ATTEMPT)
        base = dataclasses.replace(job, attempt=number, **changes)  # type: ignore[arg-type]
        detail = f"attempt {number} starts: the job was requeued"
        events.append(event(base, evidence, kind="attempt", source=row.source, detail=detail))
    changes |= {name: value for name in _COPIED if (value := getattr(row, name)) is not None}
    if job.tracked_name is not None and job.stdout_path is not None:
        # The log of a tracked job may have been named by a person.
        changes.pop("stdout_path", None)
    changes |= {
        "state": row.state,
        "reason": row.reason,
        "attempt": number,
        "restart_count": max(number, row.restart_count or 0),
        "observed_at": max(row.observed_at, job.observed_at or row.observed_at),
        "misses": 0,
        "missing_since": None,
        "settled": settled,
    }
    if row.state not in jobs.TERMINAL:
        changes |= {"ended_at": None, "exit_code": None, "exit_signal": None}
        if row.state in _NOT_STARTED:
            # squeue prints the expected start of a pending job in the same column.
            changes |= {"started_at": None, "node_list": None}
    after = dataclasses.replace(base, **changes)  # type: ignore[arg-type]
    if row.state is not job.state:
        detail = _state_change(job.state, after)
        states = {"state": row.state, "raw_state": row.raw_state}
        events.append(
            event(after, evidence, kind="state", source=row.source, detail=detail, **states)  # type: ignore[arg-type]
        )
    if settled and not job.settled and (failed_step := _failed_step(after, row)):
        events.append(event(after, evidence, kind="note", source=row.source, detail=failed_step))
    if len(sacct_rows) == number + 1:
        # The last row is the newest attempt.
        attempts.extend(_attempt_of(each) for each in sacct_rows[:-1])
    attempts.append(attempt(after))
    changed = {name: value for name, value in changes.items() if getattr(job, name) != value}
    return Transition(changes=changed, attempts=tuple(attempts), events=tuple(events))


def attempt_number(job: jobs.Job, row: Observation) -> int:
    """Return the number of the attempt that `row` reports: Slurm's restart count if printed."""
    if row.restart_count is not None:
        return max(row.restart_count, job.attempt)
    if row.source == "sacct":
        return max(row.row_number, job.attempt)
    has_started = job.started_at is not None and job.state not in _NOT_STARTED
    is_requeued = has_started and row.state in _NOT_STARTED
    is_restarted = (
        job.started_at is not None
        and row.started_at is not None
        and row.state not in _NOT_STARTED
        and row.started_at > job.started_at
    )
    return job.attempt + 1 if is_requeued or is_restarted else job.attempt


def attempt(job: jobs.Job) -> jobs.Attempt:
    """Return the newest attempt of a job."""
    return jobs.Attempt(
        number=job.attempt,
        state=job.state,
        raw_state=job.raw_state,
        reason=job.reason,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        node_list=job.node_list,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )


def with_exact_exit_code(stored: jobs.Attempt | None, new: jobs.Attempt) -> jobs.Attempt:
    """Return the new view of an attempt with the stored exit code if that is more exact.

    sacct up to 25.05 prints 9 for the exit code 137.
    """
    if stored is None or stored.exit_code is None or new.exit_code is None:
        return new
    if stored.exit_code == new.exit_code + 128:
        return dataclasses.replace(new, exit_code=stored.exit_code)
    return new


def _closed_attempt(job: jobs.Job, rows: Sequence[Observation]) -> jobs.Attempt:
    for row in rows:
        if row.row_number == job.attempt:
            return _attempt_of(row)
    return dataclasses.replace(attempt(job), state=JobState.REQUEUED)


def _attempt_of(row: Observation) -> jobs.Attempt:
    return jobs.Attempt(
        number=row.row_number,
        state=row.state,
        raw_state=row.raw_state,
        reason=row.reason,
        exit_code=row.exit_code,
        exit_signal=row.exit_signal,
        node_list=row.node_list,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _failed_step(job: jobs.Job, row: Observation) -> str:
    """Return a note about a step that failed although the script ended otherwise; "": none.

    DerivedExitCode: `srun` failed and the script continued (man sacct). sacct up to 25.05 prints
    codes from 128 on less by 128, so such pairs are the same code.
    """
    code, signal = row.step_exit_code or 0, row.step_exit_signal or 0
    if job.state not in (JobState.COMPLETED, JobState.FAILED) or not (code or signal):
        return ""
    own = job.exit_code or 0
    if job.exit_signal or (own and (signal or code in (own, own - 128))):
        return ""
    return f"a step ended with exit code {code}:{signal}, the script itself with {own}:0"


def _state_change(before: JobState, after: jobs.Job) -> str:
    text = f"{before} -> {after.state}"
    if after.state is JobState.RUNNING and after.node_list:
        return f"{text} on {after.node_list}"
    if after.state in jobs.TERMINAL and after.exit_code is not None:
        return f"{text}, exit code {after.exit_code}:{after.exit_signal or 0}"
    if after.state is JobState.PENDING and after.reason and after.reason != "None":
        return f"{text}, {after.reason}"
    return text
