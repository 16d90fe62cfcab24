"""orchestrator sweep."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from orchestrator import jobs, sweeps
from orchestrator.cli import actions, commands, output, reports, session, sweep_results
from orchestrator.cli.arguments import options, spec_options
from orchestrator.cli.commands import option
from orchestrator.cli.output import sweep_tables, terminal
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import requests
from orchestrator.controller.sweeps import plan, queries, submit_points
from orchestrator.controller.sweeps import resume as resubmission
from orchestrator.rows import action_reports, submission_lines, sweep_rows

_dry_run = option("--dry-run", "Print what would be submitted.")


@click.group("sweep", cls=commands.Group)
def sweep_commands() -> None:
    """Submit many jobs from one spec and follow them together.

    SWEEP is a name (the newest sweep with that name) or a number such as `@3`.
    """


@sweep_commands.command(
    "submit",
    "orchestrator sweep submit examples/scaling.toml --dry-run",
    "orchestrator sweep submit examples/scaling.toml --set sweep.repeats=5 --name weekly --wait",
    changes="jobs",
    when=lambda given: not given["dry_run"],
    prints=("sweep_states", "submissions"),
)
def submit_sweep(
    ctx: click.Context,
    job: requests.Description = spec_options.job,
    _scheduler: None = options.scheduler,
    snapshot: bool | None = options.snapshot,
    dry_run: bool = _dry_run,
    yes: bool = options.yes,
    wait_: bool = options.wait,
    form: str | None = options.optional_form,
) -> None:
    """Submit all points of a sweep, each exactly once.

    The table [sweep] of the spec file defines the points. All are checked before the first is
    submitted. Points with the same resources become one job array. Points above a submit limit are
    deferred and submitted later.

    The sweep has the name of the job. Confirmation is required above the profile's confirm_points
    and confirm_gpu_hours.
    """
    job = job.with_snapshot(snapshot)
    context = session.open_context(ctx)
    sweep, source, prepared = plan.described(context, job, dry_run=dry_run)
    print_plan_line(sweep.name, sweep.table.kind, prepared)
    if dry_run:
        _print_plan(prepared, form or output.default_format())
        return
    confirm(prepared, yes=yes)
    result = submit_points.submit_new(prepared, sweep, source, report=_print_submission)
    _print_result(context, result, form)
    if wait_:
        _wait(context, result.sweep)


@sweep_commands.command(
    "render",
    "orchestrator sweep render examples/scaling.toml",
    "orchestrator sweep render examples/scaling.toml --point 3",
    changes="nothing",
)
def render(
    ctx: click.Context,
    job: requests.Description = spec_options.job,
    _scheduler: None = options.scheduler,
    snapshot: bool | None = options.snapshot,
    point: int | None = option(
        "--point", "Print only the arguments of point N, from 1.", click.IntRange(min=1)
    ),
) -> None:
    """Print the batch scripts of a sweep, one for each job array.

    The output is byte for byte what `sweep submit` passes to sbatch.
    """
    job = job.with_snapshot(snapshot)
    sweep, source = requests.sweep(job, session.configuration_of(ctx))
    if point is not None:
        from orchestrator.specs import arguments

        if point > len(sweep.points):
            raise click.UsageError(f"{sweep.name} has only {len(sweep.points)} points")
        chosen = sweep.points[point - 1]
        changes = ", ".join(f"{key} = {value}" for key, value in chosen.changes.items())
        output.note(f"{chosen.name}: {changes}")
        words = [word for pair in arguments.shared(chosen.spec) for word in pair]
        terminal.print_exactly(f"{shlex.join(words)}\n")
        return
    context = session.open_context(ctx)
    prepared = plan.prepare(
        context, sweep.table, sweep.points, source=source, argv=sys.argv, without_slurm=True
    )
    for number, ready in enumerate(prepared.ready, 1):
        if len(prepared.ready) > 1:
            points = output.count(len(ready.submission.points), "point")
            click.echo(f"### script {number} of {len(prepared.ready)}: {points}")
        terminal.print_exactly(ready.script.text)


@sweep_commands.command(
    "list",
    "orchestrator sweep list",
    table=sweep_tables.SWEEP_COLUMNS,
    changes="nothing",
    prints=("sweeps",),
)
def list_sweeps(
    context: contexts.Context, limit: int = options.limit, form: str = options.form
) -> None:
    """List sweeps with the number of points in each state.

    The newest sweep is first. STATE is open, ended (all points have ended and no retry rule will
    start one again) or cancelled (no more points are submitted). MISSING counts cancelled and lost
    points, WAITING deferred ones, UNSUBMITTED those that were never submitted. `sweep rerun
    --failed` submits the FAILED points again, `--missing` the MISSING and UNSUBMITTED ones. Slurm
    is not queried.
    """
    with context.store.reading() as work:
        summaries = queries.summaries(work, work.sweeps.newest(limit=limit + 1))
    rows = [sweep_rows.sweep_row(summary) for summary in summaries]
    output.print_newest("sweeps", rows, sweep_tables.SWEEP_COLUMNS, form, limit)


@sweep_commands.command(
    "status",
    "orchestrator sweep status digits-scaling",
    "orchestrator sweep status digits-scaling --points --format csv",
    table=sweep_tables.POINT_COLUMNS,
    changes="nothing",
    prints=("sweep_states", "sweep_points"),
)
def status(
    context: contexts.Context,
    reference: str = options.sweep,
    points: bool = option("--points", "Print one row for each point."),
    refresh: bool | None = options.refresh,
    form: str = options.form,
) -> None:
    """Show the states of a sweep's points."""
    sweep = queries.find(context, reference)
    on_demand.refresh(context, refresh)
    if points:
        row_of = sweep_rows.point_row if output.is_json(form) else sweep_rows.point_line
        now = context.clock.now()
        rows = [row_of(point, now) for point in queries.points(context, sweep)]
        output.print_rows("sweep_points", rows, sweep_tables.POINT_COLUMNS, form)
    else:
        _print_states(context, sweep, form)


sweep_commands.add_command(sweep_results.show_results)
sweep_commands.add_command(reports.report)


@sweep_commands.command(
    "resume", "orchestrator sweep resume digits-scaling", changes="jobs", prints=("sweep_states",)
)
def resume(
    context: contexts.Context,
    reference: str = options.sweep,
    form: str | None = options.optional_form,
) -> None:
    """Submit the points of a sweep that are not submitted yet.

    For example after an interrupt, a refusal or `sweep cancel`. Points that were submitted, or
    might have been, and deferred points are not submitted again.
    """
    sweep = queries.find(context, reference)
    result = resubmission.resume(context, sweep, argv=sys.argv, report=_print_submission)
    _print_result(context, result, form)


@sweep_commands.command(
    "rerun",
    "orchestrator sweep rerun digits-scaling",
    "orchestrator sweep rerun digits-scaling --point 3 --point gpus4-r2-9f86d081",
    changes="jobs",
    prints=("sweep_states",),
)
def rerun(
    context: contexts.Context,
    reference: str = options.sweep,
    failed: bool = option("--failed", "Submit points that failed."),
    missing: bool = option("--missing", "Submit points cancelled, lost or never submitted."),
    points: tuple[str, ...] = option(
        "--point", "Submit this point, by number or name, however it ended.", "POINT", multiple=True
    ),
    form: str | None = options.optional_form,
) -> None:
    """Submit failed or missing points of a sweep again.

    They become new jobs; the newest job of a point counts. Pending and running points are not
    affected. The default is --failed --missing. An array that was never submitted is submitted as a
    whole.
    """
    sweep = queries.find(context, reference)
    is_default = not (failed or missing or points)
    result = resubmission.rerun(
        context,
        sweep,
        failed=failed or is_default,
        missing=missing or is_default,
        named=points,
        argv=sys.argv,
        report=_print_submission,
    )
    _print_result(context, result, form)


@sweep_commands.command(
    "add",
    "orchestrator sweep add digits-scaling examples/scaling.toml --set sweep.repeats=5",
    changes="jobs",
    when=lambda given: not given["dry_run"],
    prints=("sweep_states", "submissions"),
)
def add(
    ctx: click.Context,
    reference: str = options.sweep,
    job: requests.Description = spec_options.job,
    dry_run: bool = _dry_run,
    yes: bool = options.yes,
    form: str | None = options.optional_form,
) -> None:
    """Add points to a sweep and submit them.

    The new points are those of the spec file that the sweep does not have. Two points are the same
    if they set the same keys to the same values. The sweep keeps its max_running and
    baseline_first.
    """
    sweep, source = requests.sweep(job, session.configuration_of(ctx))
    context = session.open_context(ctx)
    stored = queries.find(context, reference)
    new = resubmission.new_points(context, stored, sweep)
    for key, given, kept in (
        ("max_running", sweep.table.max_running, stored.max_running),
        ("baseline_first", sweep.table.baseline_first or None, stored.baseline_first or None),
    ):
        if given is not None and given != kept:
            output.note(f"sweep.{key} is ignored: @{stored.row} keeps its value")
    if not new:
        output.note(f"{stored.name} already has all {len(sweep.points)} points")
        if form is not None:
            _print_result(context, submit_points.Submitted(sweep=stored), form)
        return
    prepared = plan.prepare(context, stored, new, source=source, argv=sys.argv)
    print_plan_line(stored.name, stored.kind, prepared)
    if dry_run:
        _print_plan(prepared, form or output.default_format())
        return
    confirm(prepared, yes=yes)
    result = resubmission.add_points(prepared, stored, report=_print_submission)
    _print_result(context, result, form)


@sweep_commands.command(
    "cancel", "orchestrator sweep cancel digits-scaling", changes="jobs", prints=("sweep_states",)
)
def cancel(
    context: contexts.Context,
    reference: str = options.sweep,
    timeout: float = actions.timeout_option,
    form: str | None = options.optional_form,
) -> None:
    """Cancel the jobs of a sweep and submit no more points.

    `sweep resume` submits points that were never submitted, `sweep rerun --missing` also cancelled
    ones.
    """
    sweep = queries.find(context, reference)
    unsubmitted, live = queries.close(context, sweep)
    cancelled = actions.cancel_live(context, live, timeout)
    if form is not None:
        _print_states(context, sweep, form)
        return
    click.echo(action_reports.of_cancelled_sweep(sweep, cancelled, unsubmitted))


def print_plan_line(name: str, kind: str, prepared: plan.Prepared) -> None:
    """Print the size of a sweep, in a sentence."""
    totals = prepared.totals
    unlimited = totals.points_without_time_limit
    parts = [output.count(totals.points, "point"), output.count(len(prepared.ready), "submission")]
    if unlimited < totals.points:
        hours = {"GPU-hours": totals.gpu_hours, "node-hours": totals.node_hours}
        shown = [f"{number:.4g} {unit}" for unit, number in hours.items() if number]
        parts.append(f"at most {' and '.join(shown)}")
    if unlimited:
        parts.append(f"{output.count(unlimited, 'point')} without a known time limit")
    output.note(f"{name} ({kind}): {', '.join(parts)}")


def confirm(prepared: plan.Prepared, *, yes: bool) -> None:
    """Ask for confirmation if the sweep is large. UsageError if stdin is not a terminal."""
    reason = plan.needs_consent(prepared)
    if not reason or yes or prepared.context.guard.approve is not None:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{reason}: confirm with --yes")
    click.confirm(f"{reason}. Submit?", abort=True, err=True)


def _print_plan(prepared: plan.Prepared, form: str) -> None:
    rows = [sweep_rows.submission_row(ready.submission) for ready in prepared.ready]
    output.print_rows("submissions", rows, sweep_tables.SUBMISSION_COLUMNS, form)


def _print_submission(tasks: Sequence[jobs.Job]) -> None:
    # One line for all deferred submissions is enough: the first one was refused.
    if not tasks[0].is_deferred or tasks[0].refusals:
        output.note(submission_lines.of_job(tasks))


def _print_states(context: contexts.Context, sweep: sweeps.StoredSweep, form: str) -> None:
    with context.store.reading() as work:
        (summary,) = queries.summaries(work, [sweep])
    rows = sweep_rows.state_rows(summary)
    output.print_rows("sweep_states", rows, sweep_tables.STATE_COLUMNS, form)


def _print_result(
    context: contexts.Context, result: submit_points.Submitted, form: str | None
) -> None:
    if form is not None:
        _print_states(context, result.sweep, form)
    else:
        click.echo(submission_lines.of_sweep(result))
    if result.deferred:
        output.note(
            "`orchestrator status`, `sweep status`, `refresh` or `wait` submits deferred points as "
            f"soon as limits allow; `orchestrator wait --sweep @{result.sweep.row}` waits until "
            "all have ended."
        )


def _wait(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Wait until all points end. OrchestratorError unless all are COMPLETED."""
    with context.store.reading() as work:
        rows = [job.row for job in work.sweeps.jobs(sweep.row)]
    action_reports.raise_unless_points_completed(actions.wait_for_end(context, rows), sweep.row)
