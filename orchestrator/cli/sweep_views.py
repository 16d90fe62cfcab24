"""Sweeps and their points -> the rows that are printed."""

from __future__ import annotations

import datetime

from orchestrator import jobs, sweeps
from orchestrator.cli import views
from orchestrator.controller.sweeps import queries

SWEEP_COLUMNS = (
    "name",
    "kind",
    "state",
    "points",
    "completed",
    "failed",
    "missing",
    "running",
    "pending",
    "waiting",
    "unsubmitted",
    "gpu_hours",
    "created_at",
    "row",
)
GROUP_COLUMNS = ("state", "points", "exit", "reason")
POINT_COLUMNS = ("number", "name", "state", "job_id", "exit", "elapsed", "reason", "row")
#: What a point tells of its job.
_OF_JOB = (
    "state",
    "job_id",
    "row",
    "reason",
    "cause",
    "exit_code",
    "exit_signal",
    "attempt",
    "nodes",
    "gpus",
    "submitted_at",
    "started_at",
    "ended_at",
    "elapsed_seconds",
)


def sweep_row(summary: queries.Summary) -> dict[str, object]:
    """Return a sweep as printed, with how many points are where."""
    sweep, counts = summary.sweep, dict.fromkeys(_PLACES, 0)
    for group in summary.groups:
        counts[_place(group)] += group.points
    return {
        "row": sweep.row,
        "name": sweep.name,
        "kind": sweep.kind,
        "state": sweep.state,
        "cluster": sweep.cluster,
        "scheduler": sweep.scheduler,
        "points": summary.totals.points,
        **counts,
        "gpu_hours": round(summary.totals.gpu_hours, 3),
        "node_hours": round(summary.totals.node_hours, 3),
        "points_without_time_limit": summary.totals.points_without_time_limit,
        "max_running": sweep.max_running,
        "source": sweep.source,
        "folder": sweep.folder,
        "profile": sweep.profile,
        "created_at": sweep.created_at,
    }


_PLACES = ("completed", "failed", "missing", "running", "pending", "waiting", "unsubmitted")


def _place(group: sweeps.PointGroup) -> str:
    """Return in which column a person looks for these points."""
    state = group.state
    if state is None:
        return "unsubmitted"
    if group.is_deferred:
        return "waiting"
    if state is jobs.JobState.NOT_SUBMITTED:
        return "unsubmitted"
    if state is jobs.JobState.COMPLETED:
        return "completed"
    if state in jobs.TERMINAL:
        # In the words of `sweep rerun`.
        return "failed" if state in queries.FAILED else "missing"
    if state in jobs.UNCONFIRMED or state is jobs.JobState.PENDING:
        return "pending"
    return "running"


def group_rows(summary: queries.Summary) -> list[dict[str, object]]:
    """Return a row for each state and reason that points of a sweep have."""
    alike: dict[tuple[object, ...], dict[str, object]] = {}
    for group in summary.groups:
        reason = None if group.reason == "None" else group.reason
        code = group.exit_code
        # Why a point that ended well once waited says nothing any more.
        shown = None if group.state is jobs.JobState.COMPLETED else reason
        if group.state is None:
            shown = "cancelled" if summary.sweep.state == "cancelled" else "not submitted yet"
        row: dict[str, object] = {
            "sweep": summary.sweep.name,
            "sweep_row": summary.sweep.row,
            "state": None if group.state is None else str(group.state),
            "points": 0,
            "exit": None if code is None else f"{code}:{group.exit_signal or 0}",
            "exit_code": code,
            "exit_signal": group.exit_signal,
            "cause": group.cause,
            "reason": shown,
            "is_deferred": group.is_deferred,
        }
        key = tuple(value for name, value in row.items() if name != "points")
        kept = alike.setdefault(key, row)
        points = kept["points"]
        assert isinstance(points, int)
        kept["points"] = points + group.points
    return list(alike.values())


def point_row(pair: queries.PointJob, now: datetime.datetime, *, plain: bool) -> dict[str, object]:
    """Return a point as printed; `plain`: with its job's times as they are."""
    point, job = pair.point, pair.job
    row: dict[str, object] = {
        "number": pair.number,
        "name": point.name,
        "identity": point.identity,
        "repeat": point.repeat,
        "settings": point.settings,
        "changes": point.changes,
        # All there are, also of a point without a job: who reads JSON need not ask.
        **dict.fromkeys(_OF_JOB),
        "exit": None,
    }
    if job is None:
        return row
    of_job = views.job_row(job, now) if plain else views.job_line(job, now)
    row |= {name: of_job[name] for name in _OF_JOB}
    if not plain:
        row["elapsed"] = of_job["elapsed"]
    if job.exit_code is not None:
        row["exit"] = f"{job.exit_code}:{job.exit_signal or 0}"
    return row
