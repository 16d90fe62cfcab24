"""Jobs, attempts, events and metrics as rows. The JSON fields are a contract."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.cli import output
from orchestrator.cli.output import Column
from orchestrator.jobs import naming

if typing.TYPE_CHECKING:
    from orchestrator.controller.recovery import chains

#: Columns of a table; JSON has all fields of job_row().
JOB_COLUMNS = (
    # Tasks of an array with the same state are one row: 41_[0,3-5,...].
    Column("job_id", "parts"),
    Column("name", "name"),
    Column("state"),
    Column("reason", "text", drop=7),
    Column("elapsed", drop=6),
    Column("time_limit", drop=3),
    Column("nodes", drop=1),
    Column("gpus", drop=4),
    Column("node_list", "parts", drop=2),
    Column("row", drop=5),
)
ATTEMPT_COLUMNS = (
    Column("number"),
    Column("state"),
    Column("exit"),
    Column("node_list", "parts", drop=1),
    Column("started_at", drop=2),
    Column("ended_at"),
    Column("reason", "text"),
)
CHAIN_COLUMNS = (
    Column("job_id"),
    Column("attempt", drop=4),
    Column("state"),
    Column("step", drop=3),
    Column("then", "text"),
)

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


def job_row(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(_JOB_FIELDS)
    alerts = [output.fields_of(alert, ("rule", "since", "detail")) for alert in job.current_alerts]
    computed = {
        "elapsed_seconds": elapsed_seconds(job, now),
        "labels": list(job.labels),
        "resend_at": job.resend_at if job.is_deferred else None,
        "alerts": alerts,
    }
    row.update(output.fields_of(job, row.keys() - computed.keys()), **computed)
    return row


def job_line(row: output.Row) -> output.Row:
    """Return a job's row for a table, with values in Slurm's short forms."""
    reason = "" if row["reason"] in (None, "None") else row["reason"]
    if row["alerts"]:
        reason = f"alert: {', '.join(alert['rule'] for alert in row['alerts'])}"
    if row["resend_at"]:
        reason = f"{reason}; next try {output.time_of_day(row['resend_at'])}"
    return {
        **row,
        "reason": reason,
        "elapsed": output.elapsed(row["elapsed_seconds"]),
        "time_limit": output.elapsed(row["time_limit_seconds"]),
    }


def print_jobs(shown: Sequence[jobs.Job], now: datetime.datetime, form: str) -> None:
    print_job_rows([job_row(job, now) for job in shown], form)


def print_job_rows(rows: Sequence[output.Row], form: str) -> None:
    output.print_rows("jobs", rows, JOB_COLUMNS, form, line=job_line)


def folded_rows(shown: Sequence[jobs.Job], now: datetime.datetime) -> list[dict[str, object]]:
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
    return [_folded_row(group, now) for group in groups.values()]


def _folded_row(tasks: Sequence[jobs.Job], now: datetime.datetime) -> dict[str, object]:
    first, *rest = (job_row(job, now) for job in tasks)
    if not rest:
        return first
    common = {
        name: value if all(row[name] == value for row in rest) else None
        for name, value in first.items()
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
    row = dict.fromkeys(_ATTEMPT_FIELDS)
    shown = exit_text(attempt.exit_code, attempt.exit_signal)
    return {**row, **output.fields_of(attempt, row.keys() - {"exit"}), "exit": shown}


def event_row(event: jobs.JobEvent) -> dict[str, object]:
    return output.fields_of(event, _EVENT_FIELDS)


def link_row(link: chains.Link) -> dict[str, object]:
    """Return a job of a recovery chain, and what was decided when it ended."""
    stored = link.decision
    return {
        "job_id": link.job.job_id,
        "row": link.job.row,
        **output.fields_of(link, ("attempt", "state")),
        **output.fields_of(stored, ("cause", "step", "action")),
        "outcome": stored and stored.state,
        "then": stored and stored.detail,
        "due_at": stored and stored.due_at,
    }


def reference_to(sweep_row: int | None, job_row: int | None) -> str:
    """Return how a sweep or job is named on the command line, or ""."""
    if sweep_row is not None:
        return f"sweep @{sweep_row}"
    return "" if job_row is None else f"@{job_row}"
