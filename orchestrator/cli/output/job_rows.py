"""Jobs, attempts, events and metrics as rows. The JSON fields are a contract."""

from __future__ import annotations

import datetime
import math
import typing
from collections.abc import Sequence

from orchestrator import jobs, metrics
from orchestrator.cli import output
from orchestrator.jobs import naming

if typing.TYPE_CHECKING:
    from orchestrator.controller.recovery import chains
    from orchestrator.controller.schedules import submitted

#: Columns of a table; JSON has all fields of job_row().
JOB_COLUMNS = (
    *("job_id", "name", "state", "reason", "elapsed", "time_limit", "nodes", "gpus"),
    *("node_list", "row"),
)
ATTEMPT_COLUMNS = ("number", "state", "exit", "node_list", "started_at", "ended_at", "reason")
CHAIN_COLUMNS = ("job_id", "attempt", "state", "step", "then")
METRIC_COLUMNS = ("job_id", "name", "value", "unit", "epoch", "step", "time", "source")

_JOB_FIELDS = (
    *("row", "job_id", "array_job_id", "array_task_id", "name", "cluster", "scheduler", "state"),
    *("raw_state", "reason", "cause", "exit_code", "exit_signal", "partition", "account", "qos"),
    *("nodes", "gpus", "cpus", "node_list", "time_limit_seconds", "submitted_at", "started_at"),
    *("ended_at", "elapsed_seconds", "attempt", "restart_count", "sweep", "labels", "run_dir"),
    *("stdout_path", "stderr_path", "stale_since", "resend_at", "alerts", "continues"),
)
_ATTEMPT_FIELDS = (
    *("number", "state", "raw_state", "reason", "exit", "exit_code", "exit_signal", "node_list"),
    *("submitted_at", "started_at", "ended_at"),
)
_EVENT_FIELDS = ("at", "kind", "attempt", "state", "raw_state", "source", "detail")
_METRIC_FIELDS = ("unit", "step", "epoch", "rank", "world_size")


def job_row(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    """Return a job with all its JSON fields."""
    computed: dict[str, object] = {
        "elapsed_seconds": elapsed_seconds(job, now),
        "labels": list(job.labels),
        "resend_at": job.resend_at if job.is_deferred else None,
        "alerts": [
            output.fields_of(alert, ("rule", "since", "detail")) for alert in job.current_alerts
        ],
    }
    return {
        name: computed[name] if name in computed else getattr(job, name) for name in _JOB_FIELDS
    }


def job_line(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    """Return a job as a row of a table, with values in Slurm's short forms."""
    row = job_row(job, now)
    reason = reason_of(job) or ""
    if alerts := job.current_alerts:
        reason = f"alert: {', '.join(alert.rule for alert in alerts)}"
    if job.is_deferred and job.resend_at is not None:
        reason = f"{reason}; next try {output.time_of_day(job.resend_at)}"
    row.update(
        job_id=job.job_id or "",
        reason=reason,
        elapsed=output.elapsed(elapsed_seconds(job, now)),
        time_limit=output.elapsed(job.time_limit_seconds),
        row=f"@{job.row}",
    )
    return row


def print_jobs(shown: Sequence[jobs.Job], now: datetime.datetime, form: str) -> None:
    as_row = job_row if output.is_json(form) else job_line
    output.print_rows("jobs", [as_row(job, now) for job in shown], JOB_COLUMNS, form)


def folded_lines(shown: Sequence[jobs.Job], now: datetime.datetime) -> list[dict[str, object]]:
    """Return jobs as rows of a table. Array tasks with the same state and reason are one row.

    squeue folds pending tasks only; this also folds tasks that ended.
    """
    groups: dict[tuple[object, ...], list[jobs.Job]] = {}
    for job in shown:
        is_folded = job.array_task_id is not None and (
            job.state in jobs.TERMINAL or job.started_at is None
        )
        key: tuple[object, ...] = (job.row,)
        if is_folded:
            key = (job.token, job.state, job.reason, job.exit_code, job.array_job_id is None)
        groups.setdefault(key, []).append(job)
    return [_folded_line(group, now) for group in groups.values()]


def _folded_line(tasks: Sequence[jobs.Job], now: datetime.datetime) -> dict[str, object]:
    lines = [job_line(job, now) for job in tasks]
    if len(lines) == 1:
        return lines[0]
    common = {
        name: value if all(line[name] == value for line in lines) else None
        for name, value in lines[0].items()
    }
    rows = sorted(job.row for job in tasks)
    has_id = tasks[0].array_job_id is not None
    numbers = naming.fold_tasks(job.array_task_id or 0 for job in tasks)
    return {
        **common,
        "job_id": naming.names_of(tasks) if has_id else f"_[{numbers}]",
        "row": f"@{rows[0]}-{rows[-1]}" if rows[-1] - rows[0] == len(rows) - 1 else "",
    }


def elapsed_seconds(job: jobs.Job, now: datetime.datetime) -> int | None:
    """Return how long the newest attempt has run, by Slurm's timestamps."""
    if job.started_at is None or job.state is jobs.JobState.PENDING:
        return None
    end = job.ended_at or (None if job.state in jobs.TERMINAL else now)
    # The clocks of this host and of slurmctld may differ.
    return None if end is None else max(0, int((end - job.started_at).total_seconds()))


def reason_of(job: jobs.Job) -> str | None:
    """Return Slurm's reason, or None for its word "None"."""
    return None if job.reason == "None" else job.reason


def exit_text(exit_code: int | None, exit_signal: int | None) -> str | None:
    """Return `CODE:SIGNAL`, as sacct prints it."""
    return None if exit_code is None else f"{exit_code}:{exit_signal or 0}"


def attempt_row(attempt: jobs.Attempt) -> dict[str, object]:
    shown = exit_text(attempt.exit_code, attempt.exit_signal)
    return {name: shown if name == "exit" else getattr(attempt, name) for name in _ATTEMPT_FIELDS}


def event_row(event: jobs.JobEvent) -> dict[str, object]:
    return output.fields_of(event, _EVENT_FIELDS)


def link_row(link: chains.Link) -> dict[str, object]:
    """Return a job of a recovery chain, and what was decided when it ended."""
    stored = link.decision
    decision = None if stored is None else stored.decision
    return {
        "job_id": link.job.job_id,
        "row": link.job.row,
        "attempt": link.attempt,
        "state": link.state,
        "cause": decision and decision.cause,
        "step": decision and decision.step,
        "action": decision and decision.action,
        "outcome": stored and stored.state,
        "then": stored and stored.detail,
        "due_at": decision and decision.due_at,
    }


def reference_to(submission: submitted.Submitter) -> str:
    """Return how a job or sweep that was submitted is named on the command line, or ""."""
    if submission.sweep_row is not None:
        return f"sweep @{submission.sweep_row}"
    return "" if submission.job_row is None else f"@{submission.job_row}"


def metric_row(row: metrics.MetricRow, job: jobs.Job) -> dict[str, object]:
    return {
        "row": row.id,
        "job_id": job.job_id,
        "array_task_id": job.array_task_id,
        "attempt": row.attempt,
        "name": row.name,
        "value": math.nan if row.value is None else row.value,
        **output.fields_of(row, _METRIC_FIELDS),
        "time": None if row.time is None else row.time.replace(tzinfo=datetime.UTC),
        "source": row.source,
        "line": row.line,
    }
