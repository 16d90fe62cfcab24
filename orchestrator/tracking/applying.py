"""An observation that is believed -> the changes to the job row, its attempts and events."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence

from orchestrator import jobs
from orchestrator.jobs import JobState
from orchestrator.tracking import verdicts
from orchestrator.tracking.observations import Observation, Verdict

_NOT_BEGUN = frozenset({JobState.PENDING, JobState.REQUEUED, JobState.REQUEUE_HOLD})
_COPIED = (
    "raw_job_id",
    "raw_state",
    "exit_code",
    "exit_signal",
    "partition",
    "account",
    "qos",
    "nodes",
    "gpus",
    "cpus",
    "node_list",
    "time_limit_seconds",
    "submitted_at",
    "started_at",
    "ended_at",
    "stdout_path",
)


def apply(
    job: jobs.Job,
    row: Observation,
    sacct_rows: Sequence[Observation],
    *,
    settled: bool,
    now: datetime.datetime,
) -> Verdict:
    number = attempt_number(job, row)
    events: list[jobs.JobEvent] = []
    attempts: list[jobs.Attempt] = []
    base = job
    if number > job.attempt:
        attempts.append(_closed_attempt(job, sacct_rows))
        base = dataclasses.replace(
            job,
            attempt=number,
            started_at=None,
            ended_at=None,
            exit_code=None,
            exit_signal=None,
            node_list=None,
            cause=None,
        )
        detail = f"attempt {number} begins: the job was put back into the queue"
        events.append(
            dataclasses.replace(
                verdicts.event(job, now, "attempt", row.source, detail), attempt=number
            )
        )
    changes: dict[str, object] = {
        name: value for name in _COPIED if (value := getattr(row, name)) is not None
    }
    if job.tracked_name is not None and job.stdout_path is not None:
        # Its log may have been named by a person.
        changes.pop("stdout_path", None)
    changes.update(
        state=row.state,
        reason=row.reason,
        attempt=number,
        restart_count=max(number, row.restart_count or 0),
        observed_at=max(row.observed_at, job.observed_at or row.observed_at),
        misses=0,
        missing_since=None,
        settled=settled,
    )
    if row.state not in jobs.TERMINAL:
        changes.update(ended_at=None, exit_code=None, exit_signal=None)
        if row.state in _NOT_BEGUN:
            # squeue prints the expected start of a pending job in the same column.
            changes.update(started_at=None, node_list=None)
    if number > job.attempt:
        for name in ("started_at", "ended_at", "exit_code", "exit_signal", "node_list", "cause"):
            changes.setdefault(name, None)
    after = dataclasses.replace(base, **changes)  # type: ignore[arg-type]
    if row.state is not job.state:
        detail = _transition(job.state, after)
        events.append(
            dataclasses.replace(
                verdicts.event(job, now, "state", row.source, detail, row.state, row.raw_state),
                attempt=number,
            )
        )
    if settled and not job.settled and (told := _failed_step(after, row)):
        event = verdicts.event(job, now, "note", row.source, told)
        events.append(dataclasses.replace(event, attempt=number))
    attempts.extend(_attempts_of(sacct_rows, number))
    attempts.append(attempt(after))
    kept = {name: value for name, value in changes.items() if getattr(job, name) != value}
    return Verdict(changes=kept, attempts=tuple(attempts), events=tuple(events))


def attempt_number(job: jobs.Job, row: Observation) -> int:
    """Return the attempt that `row` tells of: Slurm's restart count where it is printed."""
    if row.restart_count is not None:
        return max(row.restart_count, job.attempt)
    if row.source == "sacct":
        return max(row.row_number, job.attempt)
    begun = job.started_at is not None and job.state not in _NOT_BEGUN
    if begun and row.state in _NOT_BEGUN:
        return job.attempt + 1
    restarted = (
        job.started_at is not None
        and row.started_at is not None
        and row.state not in _NOT_BEGUN
        and row.started_at > job.started_at
    )
    return job.attempt + 1 if restarted else job.attempt


def attempt(job: jobs.Job) -> jobs.Attempt:
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


def _closed_attempt(job: jobs.Job, rows: Sequence[Observation]) -> jobs.Attempt:
    for row in rows:
        if row.row_number == job.attempt:
            return _attempt_of(row)
    return dataclasses.replace(attempt(job), state=JobState.REQUEUED)


def _attempts_of(rows: Sequence[Observation], newest: int) -> Iterable[jobs.Attempt]:
    """Yield the earlier attempts as sacct -D tells them; its last row is the newest attempt."""
    if len(rows) == newest + 1:
        yield from (_attempt_of(row) for row in rows[:-1])


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
    """Return what to say of a step that failed under a script that ended otherwise; "" if none.

    DerivedExitCode: `srun` failed and the script went on (man sacct). sacct up to 25.05 prints
    codes from 128 on less by 128, so such pairs are the same code.
    """
    code, signal = row.step_exit_code or 0, row.step_exit_signal or 0
    if job.state not in (JobState.COMPLETED, JobState.FAILED) or not (code or signal):
        return ""
    own = job.exit_code or 0
    if job.exit_signal or (own and (signal or code in (own, own - 128))):
        return ""
    return f"a step ended with exit code {code}:{signal}, the script itself with {own}:0"


def _transition(before: JobState, after: jobs.Job) -> str:
    text = f"{before} -> {after.state}"
    if after.state is JobState.RUNNING and after.node_list:
        return f"{text} on {after.node_list}"
    if after.state in jobs.TERMINAL and after.exit_code is not None:
        return f"{text}, exit code {after.exit_code}:{after.exit_signal or 0}"
    if after.state is JobState.PENDING and after.reason and after.reason != "None":
        return f"{text}, {after.reason}"
    return text
