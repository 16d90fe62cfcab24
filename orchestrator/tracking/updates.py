"""From an observation that is trusted to the changes of the job, its attempts and events."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking.records import Evidence, Observation, Transition, event

_NOT_STARTED = frozenset({JobState.PENDING, JobState.REQUEUED, JobState.REQUEUE_HOLD})
_COPIED = (
    *("raw_job_id", "raw_state", "exit_code", "exit_signal", "partition", "account", "qos"),
    *("nodes", "gpus", "cpus", "node_list", "time_limit_seconds"),
    *("submitted_at", "started_at", "ended_at", "stdout_path"),
)
_ATTEMPT_FIELDS = {field.name for field in dataclasses.fields(jobs.Attempt)} - {"number"}
#: Fields of a job that start over with each attempt.
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
    is_new_attempt = number > job.attempt
    values: dict[str, object] = dict.fromkeys(_OF_ATTEMPT) if is_new_attempt else {}
    values |= {name: value for name in _COPIED if (value := getattr(row, name)) is not None}
    if job.tracked_name is not None and job.stdout_path is not None:
        # The log of a tracked job may have been named by a person.
        values.pop("stdout_path", None)
    values |= {
        "state": row.state,
        "reason": row.reason,
        "attempt": number,
        "restart_count": max(number, row.restart_count or 0),
        "observed_at": max(evidence.squeue_at, job.observed_at or evidence.squeue_at),
        "misses": 0,
        "missing_since": None,
        "settled": settled,
    }
    if row.state not in jobs.TERMINAL:
        values |= {"ended_at": None, "exit_code": None, "exit_signal": None}
    if row.state in _NOT_STARTED:
        # squeue prints the expected start of a pending job in the same column.
        values |= {"started_at": None, "node_list": None}
    changes = {name: value for name, value in values.items() if getattr(job, name) != value}
    if changes.keys() <= {"observed_at"}:
        return Transition(changes=changes)
    after = dataclasses.replace(job, **changes)  # type: ignore[arg-type]
    events: list[jobs.JobEvent] = []
    attempts: list[jobs.Attempt] = []
    if is_new_attempt:
        ended = [each for each in sacct_rows if each.row_number == job.attempt]
        closed = ended[0] if ended else dataclasses.replace(job, state=JobState.REQUEUED)
        attempts.append(attempt(closed, job.attempt))
        detail = f"attempt {number} starts: the job was requeued"
        events.append(event(after, evidence, "attempt", detail, source=row.source))
    if row.state is not job.state:
        detail = _state_change(job.state, after)
        states = {"state": row.state, "raw_state": row.raw_state}
        events.append(event(after, evidence, "state", detail, source=row.source, **states))  # type: ignore[arg-type]
    if settled and not job.settled and (failed_step := _failed_step(after, row)):
        events.append(event(after, evidence, "note", failed_step, source=row.source))
    if len(sacct_rows) == number + 1:
        # The last row is the newest attempt.
        attempts.extend(attempt(each, each.row_number) for each in sacct_rows[:-1])
    attempts.append(attempt(after, number))
    return Transition(changes=changes, attempts=tuple(attempts), events=tuple(events))


def attempt_number(job: jobs.Job, row: Observation) -> int:
    """Return the number of the attempt that `row` reports: Slurm's restart count if printed."""
    if row.restart_count is not None:
        return max(row.restart_count, job.attempt)
    if row.source == "sacct":
        return max(row.row_number, job.attempt)
    if job.started_at is None:
        return job.attempt
    if row.state in _NOT_STARTED:
        is_new = job.state not in _NOT_STARTED
    else:
        is_new = row.started_at is not None and row.started_at > job.started_at
    return job.attempt + 1 if is_new else job.attempt


def attempt(source: jobs.Job | Observation, number: int) -> jobs.Attempt:
    fields: dict[str, Any] = {name: getattr(source, name) for name in _ATTEMPT_FIELDS}
    return jobs.Attempt(number=number, **fields)


def with_exact_exit_code(stored: jobs.Attempt | None, new: jobs.Attempt) -> jobs.Attempt:
    """Return the new view of an attempt with the stored exit code if that is more exact.

    sacct up to 25.05 prints 9 for the exit code 137.
    """
    if stored is None or stored.exit_code is None or new.exit_code is None:
        return new
    is_exact = stored.exit_code == new.exit_code + 128
    return dataclasses.replace(new, exit_code=stored.exit_code) if is_exact else new


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
