"""Records -> the rows that are printed: the JSON fields of design section 5."""

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

JOB_COLUMNS = (
    "job_id",
    "name",
    "state",
    "reason",
    "elapsed",
    "time_limit",
    "nodes",
    "gpus",
    "node_list",
    "row",
)
ATTEMPT_COLUMNS = ("number", "state", "exit", "node_list", "started_at", "ended_at", "reason")
CHAIN_COLUMNS = ("job_id", "attempt", "state", "step", "then")
METRIC_COLUMNS = ("job_id", "name", "value", "unit", "epoch", "step", "time", "source")


def job_row(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    """Return the job as printed; times are ISO 8601 with zone, elapsed in seconds."""
    seconds = elapsed_seconds(job, now)
    return {
        "row": job.row,
        "job_id": job.job_id,
        "array_job_id": job.array_job_id,
        "array_task_id": job.array_task_id,
        "name": job.name,
        "cluster": job.cluster,
        "scheduler": job.scheduler,
        "state": str(job.state),
        "raw_state": job.raw_state,
        "reason": job.reason,
        "cause": job.cause,
        "exit_code": job.exit_code,
        "exit_signal": job.exit_signal,
        "partition": job.partition,
        "account": job.account,
        "qos": job.qos,
        "nodes": job.nodes,
        "gpus": job.gpus,
        "cpus": job.cpus,
        "node_list": job.node_list,
        "time_limit_seconds": job.time_limit_seconds,
        "submitted_at": job.submitted_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "elapsed_seconds": seconds,
        "attempt": job.attempt,
        "restart_count": job.restart_count,
        "sweep": job.sweep,
        "labels": list(job.labels),
        "run_dir": job.run_dir,
        "stdout_path": job.stdout_path,
        "stderr_path": job.stderr_path,
        "stale_since": job.stale_since,
        "resend_at": job.resend_at if job.is_deferred else None,
        "alerts": [alert_row(alert) for alert in job.current_alerts],
        "continues": job.continues,
    }


def alert_row(alert: jobs.Alert) -> dict[str, object]:
    """Return an alert as printed."""
    return {"rule": alert.rule, "since": alert.since, "detail": alert.detail}


def job_line(job: jobs.Job, now: datetime.datetime) -> dict[str, object]:
    """Return the job as a row of a table: Slurm's own forms, short."""
    row = job_row(job, now)
    reason = "" if job.reason in (None, "None") else job.reason
    if alerts := job.current_alerts:
        reason = f"alert: {', '.join(alert.rule for alert in alerts)}"
    if job.is_deferred and job.resend_at is not None:
        reason = f"{reason}; next try {output.clock(job.resend_at)}"
    row.update(
        job_id=job.job_id or "",
        reason=reason,
        elapsed=output.elapsed(elapsed_seconds(job, now)),
        time_limit=output.elapsed(job.time_limit_seconds),
        row=f"@{job.row}",
    )
    return row


def folded_lines(found: Sequence[jobs.Job], now: datetime.datetime) -> list[dict[str, object]]:
    """Return jobs as rows of a table, in which tasks of an array that are alike are one row.

    squeue folds the tasks that wait; here those that have ended alike are folded too.
    """
    groups: dict[tuple[object, ...], list[jobs.Job]] = {}
    for job in found:
        alone = job.array_task_id is None or not (
            job.state in jobs.TERMINAL or job.started_at is None
        )
        key: tuple[object, ...] = (job.row,)
        if not alone:
            key = (job.token, job.state, job.reason, job.exit_code, job.array_job_id is None)
        groups.setdefault(key, []).append(job)
    return [_folded_line(group, now) for group in groups.values()]


def _folded_line(tasks: Sequence[jobs.Job], now: datetime.datetime) -> dict[str, object]:
    lines = [job_line(job, now) for job in tasks]
    if len(lines) == 1:
        return lines[0]
    same = {name: value for name, value in lines[0].items() if _is_same(name, value, lines)}
    rows = sorted(job.row for job in tasks)
    numbers = naming.fold_tasks(job.array_task_id or 0 for job in tasks)
    named = tasks[0].array_job_id is not None
    return {
        **dict.fromkeys(lines[0]),
        **same,
        "job_id": naming.names_of(tasks) if named else f"_[{numbers}]",
        "row": f"@{rows[0]}-{rows[-1]}" if rows[-1] - rows[0] == len(rows) - 1 else "",
    }


def _is_same(name: str, value: object, lines: Sequence[dict[str, object]]) -> bool:
    return all(line[name] == value for line in lines)


def elapsed_seconds(job: jobs.Job, now: datetime.datetime) -> int | None:
    """Return how long the newest attempt has run, by Slurm's stamps."""
    if job.started_at is None or job.state is jobs.JobState.PENDING:
        return None
    end = job.ended_at or (None if job.state in jobs.TERMINAL else now)
    if end is None:
        return None
    # The clocks of this host and of slurmctld may differ: never below zero.
    return max(0, int((end - job.started_at).total_seconds()))


def attempt_row(attempt: jobs.Attempt) -> dict[str, object]:
    """Return an attempt as printed."""
    code = attempt.exit_code
    return {
        "number": attempt.number,
        "state": str(attempt.state),
        "raw_state": attempt.raw_state,
        "reason": attempt.reason,
        "exit": None if code is None else f"{code}:{attempt.exit_signal or 0}",
        "exit_code": code,
        "exit_signal": attempt.exit_signal,
        "node_list": attempt.node_list,
        "submitted_at": attempt.submitted_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
    }


def event_row(event: jobs.JobEvent) -> dict[str, object]:
    """Return an event as printed."""
    return {
        "at": event.at,
        "kind": event.kind,
        "attempt": event.attempt,
        "state": None if event.state is None else str(event.state),
        "raw_state": event.raw_state,
        "source": event.source,
        "detail": event.detail,
    }


def link_row(link: chains.Link) -> dict[str, object]:
    """Return a link of a chain as printed."""
    decided = link.decision
    return {
        "job_id": link.job.job_id,
        "row": link.job.row,
        "attempt": link.attempt,
        "state": str(link.state),
        "cause": None if decided is None else decided.decision.cause,
        "step": None if decided is None else decided.decision.step,
        "action": None if decided is None else str(decided.decision.action),
        "outcome": None if decided is None else decided.state,
        "then": None if decided is None else decided.detail,
        "due_at": None if decided is None else decided.decision.due_at,
    }


def named(whole: submitted.Whole) -> str:
    """Return how what a schedule or a graph submitted is called; "": nothing was yet."""
    if whole.sweep_row is not None:
        return f"sweep @{whole.sweep_row}"
    return "" if whole.job_row is None else f"@{whole.job_row}"


def metric_row(row: metrics.MetricRow, job: jobs.Job) -> dict[str, object]:
    """Return a metric as printed."""
    return {
        "row": row.id,
        "job_id": job.job_id,
        "array_task_id": job.array_task_id,
        "attempt": row.attempt,
        "name": row.name,
        "value": math.nan if row.value is None else row.value,
        "unit": row.unit,
        "step": row.step,
        "epoch": row.epoch,
        "rank": row.rank,
        "world_size": row.world_size,
        "time": None if row.time is None else row.time.replace(tzinfo=datetime.UTC),
        "source": row.source,
        "line": row.line,
    }
