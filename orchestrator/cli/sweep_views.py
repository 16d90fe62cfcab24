"""What the commands of sweeps print, and what they ask."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence

import click

from orchestrator import jobs
from orchestrator.cli import output, submit, views
from orchestrator.controller import context as contexts
from orchestrator.controller import sweep_plan, sweep_query, sweep_rows, sweep_submit

PLAN_COLUMNS = ("points", "nodes", "gpus_per_node", "partition", "time_limit", "first", "last")
SENT_COLUMNS = ("job_id", "points", "state", "reason", "row")
SWEEP_COLUMNS = (
    "name",
    "kind",
    "points",
    "completed",
    "failed",
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


def plan_line(name: str, kind: str, prepared: sweep_plan.Prepared) -> str:
    """Return what a sweep comes to, in a sentence."""
    asked = prepared.asked
    calls = len(prepared.ready)
    parts = [
        f"{asked.points} point" + ("s" if asked.points != 1 else ""),
        f"{calls} submission" + ("s" if calls != 1 else ""),
    ]
    if asked.points_without_time_limit < asked.points:
        parts.append(
            f"at most {asked.gpu_hours:.4g} GPU-hours and {asked.node_hours:.4g} node-hours"
        )
    if asked.points_without_time_limit:
        parts.append(f"{asked.points_without_time_limit} without a known time limit")
    return f"{name} ({kind}): {', '.join(parts)}"


def plan_rows(prepared: sweep_plan.Prepared, *, plain: bool) -> list[dict[str, object]]:
    """Return a row for each submission; `plain`: with the points themselves."""
    rows: list[dict[str, object]] = []
    for one in prepared.ready:
        spec, points = one.submission.spec, one.submission.points
        row: dict[str, object] = {
            "points": len(points),
            "name": spec.name,
            "nodes": spec.resources.nodes,
            "gpus_per_node": spec.resources.gpus_per_node,
            "partition": spec.partition,
            "time_limit": spec.time_limit,
            "max_running": spec.array.max_running,
            "first": points[0].name,
            "last": points[-1].name,
        }
        if plain:
            row["members"] = [
                {"name": point.name, "identity": point.identity, "settings": point.settings}
                for point in points
            ]
        rows.append(row)
    return rows


def ask(why: str, *, yes: bool) -> None:
    """Ask a person whether to go on; UsageError where there is none to ask."""
    if not why or yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{why}: say --yes to submit it all the same")
    click.confirm(f"{why}. Submit it?", abort=True, err=True)


def tell(tasks: Sequence[jobs.Job]) -> None:
    """Say what became of one submission; of those that wait the first line is enough."""
    if tasks[0].waits_for_room and not tasks[0].refusals:
        return
    output.say(submit.told_of(tasks))


def told(
    context: contexts.Context, sent: sweep_submit.Sent, format_: str | None, as_json: bool
) -> None:
    """Print what became of the points."""
    sweep = sent.sweep
    if format_ is not None or as_json:
        rows = group_rows(sweep_query.summaries(context, [sweep])[0])
        output.items("sweep_states", rows, GROUP_COLUMNS, output.chosen(format_, as_json))
    elif not sent.submitted and not sent.waiting:
        click.echo(f"Nothing is left to submit of sweep {sweep.name} (@{sweep.row})")
    else:
        count = f"{sent.submitted} point" + ("s" if sent.submitted != 1 else "")
        more = f", {sent.waiting} wait for room" if sent.waiting else ""
        click.echo(f"Submitted {count} of sweep {sweep.name} (@{sweep.row}){more}")
    if sent.waiting:
        context.say(
            "They are sent by the first `orchestrator status`, `sweep status`, `refresh` or `wait` "
            f"when there is room; `orchestrator wait --sweep {sweep.name}` waits, and sends them."
        )


def wait(context: contexts.Context, sweep: sweep_rows.StoredSweep) -> None:
    """Wait for the end of all points; OrchestratorError unless all are COMPLETED."""
    from orchestrator import errors
    from orchestrator.controller import wait as waiting

    with context.store.reading() as work:
        rows = [job.row for job in work.sweeps.jobs(sweep.row)]
    found = waiting.wait(context, rows, changed=submit.reporter(context))
    bad = [job for job in found if job.state is not jobs.JobState.COMPLETED]
    if bad:
        raise errors.OrchestratorError(
            f"{len(bad)} of {len(found)} points did not complete; "
            f"`orchestrator sweep status {sweep.name} --points` shows them"
        )


def sweep_row(summary: sweep_query.Summary) -> dict[str, object]:
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
        "points": summary.asked.points,
        **counts,
        "gpu_hours": round(summary.asked.gpu_hours, 3),
        "node_hours": round(summary.asked.node_hours, 3),
        "points_without_time_limit": summary.asked.points_without_time_limit,
        "max_running": sweep.max_running,
        "source": sweep.source,
        "folder": sweep.folder,
        "profile": sweep.profile,
        "created_at": sweep.created_at,
    }


_PLACES = ("completed", "failed", "running", "pending", "waiting", "unsubmitted")


def _place(group: sweep_rows.PointGroup) -> str:
    """Return in which column a person looks for these points."""
    state = group.state
    if state is None:
        return "unsubmitted"
    if group.waits_for_room:
        return "waiting"
    if state is jobs.JobState.COMPLETED:
        return "completed"
    if state in jobs.TERMINAL:
        return "failed"
    if state in jobs.UNCONFIRMED or state is jobs.JobState.PENDING:
        return "pending"
    return "running"


def group_rows(summary: sweep_query.Summary) -> list[dict[str, object]]:
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
            "waits_for_room": group.waits_for_room,
        }
        key = tuple(value for name, value in row.items() if name != "points")
        kept = alike.setdefault(key, row)
        points = kept["points"]
        assert isinstance(points, int)
        kept["points"] = points + group.points
    return list(alike.values())


def point_row(
    pair: sweep_query.PointJob, now: datetime.datetime, *, plain: bool
) -> dict[str, object]:
    """Return a point as printed; `plain`: with its job's times as they are."""
    point, job = pair.point, pair.job
    row: dict[str, object] = {
        "number": pair.number,
        "name": point.name,
        "identity": point.identity,
        "repeat": point.repeat,
        "settings": point.settings,
        "changes": point.changes,
        "state": None,
        "job_id": None,
        "row": None,
        "exit": None,
    }
    if job is None:
        return row
    of_job = views.job_row(job, now) if plain else views.job_line(job, now)
    names = ("state", "job_id", "row", "reason", "cause", "exit_code", "exit_signal")
    times = (
        "elapsed_seconds",
        "attempt",
        "nodes",
        "gpus",
        "submitted_at",
        "started_at",
        "ended_at",
    )
    row |= {name: of_job[name] for name in (*names, *times)}
    row["elapsed"] = of_job.get("elapsed")
    if job.exit_code is not None:
        row["exit"] = f"{job.exit_code}:{job.exit_signal or 0}"
    return row
