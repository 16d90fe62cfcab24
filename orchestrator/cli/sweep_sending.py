"""What the commands that submit points say before and after, and what they ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from orchestrator import errors, jobs, sweeps
from orchestrator.cli import output, submit, sweep_views
from orchestrator.controller.actions import wait as waiting
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import plan, queries, submit_points

PLAN_COLUMNS = ("points", "nodes", "gpus_per_node", "partition", "time_limit", "first", "last")


def plan_line(name: str, kind: str, prepared: plan.Prepared) -> str:
    """Return what a sweep comes to, in a sentence."""
    totals = prepared.totals
    calls = len(prepared.ready)
    parts = [
        f"{totals.points} point" + ("s" if totals.points != 1 else ""),
        f"{calls} submission" + ("s" if calls != 1 else ""),
    ]
    if totals.points_without_time_limit < totals.points:
        parts.append(
            f"at most {totals.gpu_hours:.4g} GPU-hours and {totals.node_hours:.4g} node-hours"
        )
    if totals.points_without_time_limit:
        parts.append(f"{totals.points_without_time_limit} without a known time limit")
    return f"{name} ({kind}): {', '.join(parts)}"


def show_plan(prepared: plan.Prepared, chosen: str) -> None:
    """Print what would be submitted; in JSON with the points themselves."""
    rows = _plan_rows(prepared, plain=output.is_json(chosen))
    output.items("submissions", rows, PLAN_COLUMNS, chosen)


def _plan_rows(prepared: plan.Prepared, *, plain: bool) -> list[dict[str, object]]:
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
    if tasks[0].is_deferred and not tasks[0].refusals:
        return
    output.say(submit.told_of(tasks))


def told(
    context: contexts.Context, sent: submit_points.Submitted, format_: str | None, as_json: bool
) -> None:
    """Print what became of the points."""
    sweep = sent.sweep
    if format_ is not None or as_json:
        rows = sweep_views.group_rows(queries.summaries(context, [sweep])[0])
        output.items(
            "sweep_states", rows, sweep_views.GROUP_COLUMNS, output.chosen(format_, as_json)
        )
    elif not sent.submitted and not sent.deferred:
        click.echo(f"Nothing is left to submit of sweep {sweep.name} (@{sweep.row})")
    else:
        count = f"{sent.submitted} point" + ("s" if sent.submitted != 1 else "")
        more = f", {sent.deferred} wait for room" if sent.deferred else ""
        click.echo(f"Submitted {count} of sweep {sweep.name} (@{sweep.row}){more}")
    if sent.deferred:
        context.reporter.info(
            "They are sent by the first `orchestrator status`, `sweep status`, `refresh` or `wait` "
            f"when there is room; `orchestrator wait --sweep @{sweep.row}` waits, and sends them."
        )


def wait(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Wait for the end of all points; OrchestratorError unless all are COMPLETED."""
    with context.store.reading() as work:
        rows = [job.row for job in work.sweeps.jobs(sweep.row)]
    found = waiting.wait(context, rows, changed=submit.reporter(context))
    bad = [job for job in found if job.state is not jobs.JobState.COMPLETED]
    if bad:
        raise errors.OrchestratorError(
            f"{len(bad)} of {len(found)} points did not complete; "
            f"`orchestrator sweep status @{sweep.row} --points` shows them"
        )
