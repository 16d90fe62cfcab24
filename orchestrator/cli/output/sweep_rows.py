"""Sweeps and their points as rows. The JSON fields are a contract."""

from __future__ import annotations

import collections
import datetime

from orchestrator import jobs, sweeps
from orchestrator.cli import output
from orchestrator.cli.output import Column, job_rows
from orchestrator.controller.sweeps import queries

_COUNTS = ("completed", "failed", "missing", "running", "pending", "waiting", "unsubmitted")
SWEEP_COLUMNS = (
    Column("name", "name"),
    Column("kind", drop=3),
    Column("state", drop=4),
    Column("points"),
    Column("completed"),
    Column("failed"),
    Column("missing", drop=7),
    Column("running", drop=8),
    Column("pending", drop=9),
    Column("waiting", drop=5),
    Column("unsubmitted", drop=6),
    Column("gpu_hours", drop=2),
    Column("created_at", drop=1),
    Column("row"),
)
STATE_COLUMNS = (Column("state"), Column("points"), Column("exit"), Column("reason", "text"))
POINT_COLUMNS = (
    Column("number"),
    Column("name", "name"),
    Column("state"),
    Column("job_id"),
    Column("exit", drop=3),
    Column("elapsed", drop=2),
    Column("reason", "text", drop=4),
    Column("row", drop=1),
)
SUBMISSION_COLUMNS = (
    Column("points"),
    Column("nodes"),
    Column("gpus_per_node"),
    Column("partition", drop=2),
    Column("time_limit", drop=3),
    Column("first", "name", drop=4),
    Column("last", "name", drop=1),
)
#: Fields of a point's job.
_JOB_FIELDS = (
    *("state", "job_id", "row", "reason", "cause", "exit_code", "exit_signal", "attempt"),
    *("nodes", "gpus", "submitted_at", "started_at", "ended_at", "elapsed_seconds"),
)


def sweep_row(summary: queries.Summary) -> dict[str, object]:
    sweep, counts = summary.sweep, dict.fromkeys(_COUNTS, 0)
    for group in summary.groups:
        counts[_count_of(group)] += group.points
    totals = summary.totals
    return {
        **output.fields_of(sweep, ("row", "name", "kind")),
        "state": summary.state,
        **output.fields_of(sweep, ("cluster", "scheduler")),
        "points": totals.points,
        **counts,
        "gpu_hours": round(totals.gpu_hours, 3),
        "node_hours": round(totals.node_hours, 3),
        "points_without_time_limit": totals.points_without_time_limit,
        **output.fields_of(sweep, ("max_running", "source", "folder", "profile", "created_at")),
    }


def _count_of(group: sweeps.PointGroup) -> str:
    """Return the column in which these points are counted."""
    state = group.state
    if group.is_deferred:
        return "waiting"
    if state in (None, jobs.JobState.NOT_SUBMITTED):
        return "unsubmitted"
    if state is jobs.JobState.COMPLETED:
        return "completed"
    if state in jobs.TERMINAL:
        # The options of `sweep rerun`.
        return "failed" if state in queries.FAILED else "missing"
    if state in jobs.UNCONFIRMED or state is jobs.JobState.PENDING:
        return "pending"
    return "running"


def state_rows(summary: queries.Summary) -> list[dict[str, object]]:
    counts: collections.Counter[tuple[tuple[str, object], ...]] = collections.Counter()
    for group in summary.groups:
        reason = None if group.reason == "None" else group.reason
        if group.state is None:
            is_cancelled = summary.sweep.state == "cancelled"
            reason = "cancelled" if is_cancelled else "not submitted yet"
        elif group.state is jobs.JobState.COMPLETED:
            # Its last pending reason.
            reason = None
        row: dict[str, object] = {
            "sweep": summary.sweep.name,
            "sweep_row": summary.sweep.row,
            "state": group.state,
            "points": None,
            "exit": job_rows.exit_text(group.exit_code, group.exit_signal),
            **output.fields_of(group, ("exit_code", "exit_signal", "cause")),
            "reason": reason,
            "waits_for_room": group.is_deferred,
        }
        counts[tuple(row.items())] += group.points
    return [{**dict(row), "points": points} for row, points in counts.items()]


def point_row(point: sweeps.StoredPoint, now: datetime.datetime) -> dict[str, object]:
    """Return a point; its job's fields are None if it has no job."""
    job = point.job
    job_row = {} if job is None else job_rows.job_row(job, now)
    return {
        **output.fields_of(point, ("number", "name", "identity", "repeat", "settings", "changes")),
        **{name: job_row.get(name) for name in _JOB_FIELDS},
        "exit": job and job_rows.exit_text(job.exit_code, job.exit_signal),
    }


def point_line(point: sweeps.StoredPoint, now: datetime.datetime) -> dict[str, object]:
    row, job = point_row(point, now), point.job
    line = {} if job is None else job_rows.job_line(job_rows.job_row(job, now))
    return {**row, "reason": line.get("reason"), "elapsed": line.get("elapsed")}


def submission_row(submission: sweeps.Submission) -> dict[str, object]:
    spec, points = submission.spec, submission.points
    fields = ("name", "identity", "settings")
    return {
        "points": len(points),
        "name": spec.name,
        "nodes": spec.resources.nodes,
        "gpus_per_node": spec.resources.gpus_per_node,
        "partition": spec.partition,
        "time_limit": spec.time_limit,
        "max_running": spec.array.max_running,
        "first": points[0].name,
        "last": points[-1].name,
        "members": [output.fields_of(point, fields) for point in points],
    }
