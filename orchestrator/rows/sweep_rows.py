"""Sweeps and their points as rows. The JSON fields are a contract."""

from __future__ import annotations

import collections
import datetime

from orchestrator import jobs, sweeps
from orchestrator.controller.sweeps import queries
from orchestrator.rows import job_rows, row_values
from orchestrator.rows.contract import sweeps as contract

COUNTS = ("completed", "failed", "missing", "running", "pending", "waiting", "unsubmitted")


def sweep_row(summary: queries.Summary) -> dict[str, object]:
    """Return a sweep as JSON has it, with the number of its points in each state."""
    sweep, counts = summary.sweep, dict.fromkeys(COUNTS, 0)
    for group in summary.groups:
        counts[_count_of(group)] += group.points
    totals = summary.totals
    return row_values.row_of(
        contract.SweepRow,
        sweep,
        state=summary.state,
        points=totals.points,
        **counts,
        gpu_hours=round(totals.gpu_hours, 3),
        node_hours=round(totals.node_hours, 3),
        points_without_time_limit=totals.points_without_time_limit,
    )


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
    """Return the number of points for each state and reason."""
    counts: collections.Counter[tuple[tuple[str, object], ...]] = collections.Counter()
    for group in summary.groups:
        reason = None if group.reason == "None" else group.reason
        if group.state is None:
            is_cancelled = summary.sweep.state == "cancelled"
            reason = "cancelled" if is_cancelled else "not submitted yet"
        elif group.state is jobs.JobState.COMPLETED:
            # Its last pending reason.
            reason = None
        row = row_values.row_of(
            contract.StateRow,
            group,
            sweep=summary.sweep.name,
            sweep_row=summary.sweep.row,
            points=None,
            exit=job_rows.exit_text(group.exit_code, group.exit_signal),
            reason=reason,
            waits_for_room=group.is_deferred,
        )
        counts[tuple(row.items())] += group.points
    return [{**dict(row), "points": points} for row, points in counts.items()]


def point_row(point: sweeps.StoredPoint, now: datetime.datetime) -> dict[str, object]:
    """Return a point; its job's fields are None if it has no job."""
    job = point.job
    job_row = {} if job is None else job_rows.job_row(job, now)
    own = ("number", "name", "identity", "repeat", "settings", "changes", "exit")
    of_job = [name for name in contract.PointRow.__annotations__ if name not in own]
    return row_values.row_of(
        contract.PointRow,
        point,
        **{name: job_row.get(name) for name in of_job},
        exit=job and job_rows.exit_text(job.exit_code, job.exit_signal),
    )


def point_line(point: sweeps.StoredPoint, now: datetime.datetime) -> dict[str, object]:
    """Return a point's row for a table, with values in Slurm's short forms."""
    row, job = point_row(point, now), point.job
    line = {} if job is None else job_rows.job_line(job_rows.job_row(job, now))
    return {**row, "reason": line.get("reason"), "elapsed": line.get("elapsed")}


def submission_row(submission: sweeps.Submission) -> dict[str, object]:
    """Return a planned submission of several points."""
    spec, points = submission.spec, submission.points
    return row_values.row_of(
        contract.SubmissionRow,
        spec,
        points=len(points),
        nodes=spec.resources.nodes,
        gpus_per_node=spec.resources.gpus_per_node,
        max_running=spec.array.max_running,
        first=points[0].name,
        last=points[-1].name,
        members=[row_values.row_of(contract.MemberRow, point) for point in points],
    )
