"""Jobs, attempts and events as rows. The JSON fields are a contract."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Hashable, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.rows import row_values
from orchestrator.rows.contract import jobs as contract

if typing.TYPE_CHECKING:
    from orchestrator.controller.recovery import chains


def job_row(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    """Return a job as JSON has it."""
    return row_values.row_of(
        contract.JobRow,
        job,
        elapsed_seconds=elapsed_seconds(job, now),
        labels=list(job.labels),
        resend_at=job.resend_at if job.is_deferred else None,
        alerts=[row_values.row_of(contract.AlertRow, alert) for alert in job.current_alerts],
    )


def job_line(row: row_values.Row) -> row_values.Row:
    """Return a job's row for a table, with values in Slurm's short forms."""
    reason = "" if row["reason"] in (None, "None") else row["reason"]
    if row["alerts"]:
        reason = f"alert: {', '.join(alert['rule'] for alert in row['alerts'])}"
    if row["resend_at"]:
        reason = f"{reason}; next try {row_values.time_of_day(row['resend_at'])}"
    return {
        **row,
        "reason": reason,
        "elapsed": row_values.elapsed(row["elapsed_seconds"]),
        "time_limit": row_values.elapsed(row["time_limit_seconds"]),
    }


def folded_rows(shown: Sequence[jobs.Job], now: datetime.datetime) -> list[dict[str, object]]:
    """Return jobs as rows of a table. Array tasks with the same state and reason are one row.

    squeue folds pending tasks only; this also folds tasks that ended.
    """
    keys = [(*job.fold_key, job.array_job_id is None) for job in shown]
    return fold([job_row(job, now) for job in shown], keys)


def fold(rows: Sequence[dict[str, Any]], keys: Sequence[Hashable]) -> list[dict[str, Any]]:
    """Return rows of jobs for a table: array tasks with the same key, one for each row, are one.

    Tasks that run are not folded.
    """
    groups: dict[Hashable, list[dict[str, Any]]] = {}
    for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
        is_folded = row["array_task_id"] is not None and (
            row["state"] in jobs.TERMINAL or row["started_at"] is None
        )
        groups.setdefault((True, key) if is_folded else (False, number), []).append(row)
    return [_folded_row(group) for group in groups.values()]


def _folded_row(tasks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, *rest = tasks
    if not rest:
        return first
    common = {
        name: value if all(row[name] == value for row in rest) else None
        for name, value in first.items()
    }
    rows = sorted(row["row"] for row in tasks)
    numbers = naming.fold_tasks(row["array_task_id"] for row in tasks)
    return {
        **common,
        "job_id": f"{first['array_job_id'] or ''}_[{numbers}]",
        "row": f"@{rows[0]}-{rows[-1]}" if rows[-1] - rows[0] == len(rows) - 1 else "",
    }


def group_line(group: jobs.JobGroup, now: datetime.datetime) -> dict[str, object]:
    """Return a job, or tasks folded in the database, as the line of a table."""
    job = group.first
    line = {**job_line(job_row(job, now)), "job_id": naming.name_of(job)}
    if group.count == 1:
        return line
    tasks = f"{group.first_task}-{group.last_task}" if group.is_range else f"{group.count} tasks"
    common = {name: None for name in ("elapsed", "node_list", "started_at")}
    return {**line, **common, "job_id": f"{job.array_job_id or ''}_[{tasks}]"}


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
    """Return an attempt as JSON has it."""
    shown = exit_text(attempt.exit_code, attempt.exit_signal)
    return row_values.row_of(contract.AttemptRow, attempt, exit=shown)


def event_row(event: jobs.JobEvent) -> dict[str, object]:
    """Return an event as JSON has it."""
    return row_values.row_of(contract.EventRow, event)


def link_row(link: chains.Link) -> dict[str, object]:
    """Return a job of a recovery chain, and what was decided when it ended."""
    return row_values.row_of(
        contract.LinkRow,
        link.decision,
        job_id=link.job.job_id,
        row=link.job.row,
        attempt=link.attempt,
        state=link.state,
        outcome=link.decision and link.decision.state,
        then=link.decision and link.decision.detail,
    )


def reference_to(sweep_row: int | None, job_row: int | None) -> str:
    """Return how a sweep or job is named on the command line, or ""."""
    if sweep_row is not None:
        return f"sweep @{sweep_row}"
    return "" if job_row is None else f"@{job_row}"
