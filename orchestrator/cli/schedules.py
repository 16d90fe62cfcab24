"""orchestrator schedule."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import click

from orchestrator import config, errors, specs
from orchestrator.cli import commands, output, schedule_install, session, sweeps
from orchestrator.cli.arguments import options, spec_options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column, schedule_tables
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.reports import baselines
from orchestrator.controller.schedules import management
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.controller.submission import intents, job_scripts, requests
from orchestrator.controller.sweeps import plan
from orchestrator.rows import schedule_rows
from orchestrator.schedules import calendars, records
from orchestrator.toml import values

NEXT_COLUMNS = (Column("local"), Column("utc", drop=1), Column("note", "text"))
#: Triggers that `show` prints; `history` prints all.
_SHOWN_TRIGGERS = 10
_name = argument()


@click.group("schedule", cls=commands.Group)
def schedule_commands() -> None:
    """Submit jobs and sweeps at planned times.

    A controller submits them: `orchestrator serve`, or `orchestrator tick` started regularly by
    cron, scrontab or systemd (see `schedule install`).
    """


@schedule_commands.command(
    "add",
    'orchestrator schedule add nightly --cron "0 2 * * 1-5" --tz Europe/Oslo examples/scaling.toml',
    "orchestrator schedule add hourly --cron @hourly --jitter 10m --overlap queue job.toml",
    changes="other",
    prints=("schedules",),
)
def add(
    ctx: click.Context,
    name: str = _name,
    job: requests.Description = spec_options.job,
    _scheduler: None = options.scheduler,
    cron: str = option(
        "--cron",
        'Minute, hour, day, month and weekday: "0 2 * * 1-5"; or @daily, @hourly, ...',
        "EXPRESSION",
        required=True,
    ),
    tz: str | None = option(
        "--tz", "IANA time zone: Europe/Oslo. Default: this machine's zone.", "ZONE"
    ),
    catchup: records.Catchup = option(
        "--catchup",
        "What to do with planned times that were missed: submit the latest, skip them, "
        "or submit all.",
        click.Choice(["latest", "skip", "all"]),
        default="latest",
    ),
    grace: int = option(
        "--grace",
        "Skip a planned time that is later than this.",
        value_types.duration,
        default="6h",
    ),
    overlap: records.Overlap | None = option(
        "--overlap",
        "While the previous submission has not ended: skip the planned time, wait, or submit. "
        "Default: skip; with --catchup all: queue.",
        click.Choice(["skip", "queue", "allow"]),
    ),
    jitter: int = option(
        "--jitter",
        "Submit up to this much later. The delay is fixed for each planned time.",
        value_types.duration,
        default="0",
    ),
    baseline: str | None = option(
        "--baseline",
        "Compare results with this baseline. Default: with earlier results of the schedule.",
        "NAME",
    ),
    snapshot: Literal["at-add", "at-trigger"] | None = option(
        "--snapshot",
        "Run a snapshot of the code, taken now or at each planned time. Default: now, if "
        "code.snapshot of the spec or the profile is true.",
        click.Choice(["at-add", "at-trigger"]),
    ),
    no_snapshot: bool = option("--no-snapshot", "Run what is in the folder when the job starts."),
    replace: bool = option("--replace", "Replace the schedule with this name."),
    yes: bool = options.yes,
    form: str | None = options.optional_form,
) -> None:
    """Add a schedule for a job or sweep.

    The spec, these options, the current folder and the environment variables that affect programs
    are stored now. Later changes to the spec file have no effect until `--replace`. Each planned
    time is submitted once, or skipped with a reason.
    """
    if error := values.form_error("name", name):
        raise click.UsageError(f"NAME: {error}")
    calendar = calendars.Calendar(cron, tz or _local_zone())
    options.refuse({"use only one of --snapshot and --no-snapshot": snapshot and no_snapshot})
    configuration = session.configuration_of(ctx)
    if snapshot is not None or no_snapshot:
        job = job.with_snapshot(not no_snapshot)
    is_taken = snapshot != "at-trigger"
    checked, context = _checked(ctx, job, configuration, yes=yes, is_taken=is_taken)
    if baseline is not None:
        baselines.find(context, baseline)
    if runs_dir := (ctx.obj or {}).get("runs_dir"):
        environ = {**context.environ, "ORCHESTRATOR_RUNS_DIR": str(runs_dir)}
        context = dataclasses.replace(context, environ=environ)
    stored = management.add(
        context,
        name,
        replace=replace,
        cron=calendar.cron,
        tz=calendar.tz,
        catchup=catchup,
        grace_seconds=grace,
        overlap=overlap or ("queue" if catchup == "all" else "skip"),
        jitter_seconds=jitter,
        baseline=baseline,
        argv=sys.argv,
        **checked,
    )
    (summary,) = management.summaries(context, [stored])
    if form is None:
        following = schedule_rows.local_time(summary.next_at, stored.tz)
        click.echo(f"Schedule {stored.name}: next {following} ({stored.tz})")
    else:
        schedule_tables.print_schedules([summary], form)
    schedule_tables.note_controller(context, [stored])


def _checked(
    ctx: click.Context,
    job: requests.Description,
    configuration: config.Configuration,
    *,
    yes: bool,
    is_taken: bool,
) -> tuple[dict[str, Any], contexts.Context]:
    """Check what is to be submitted as if it were submitted now.

    is_taken: a requested snapshot of the code is taken now.

    Returns arguments of management.add(), and the context for its scheduler.
    """
    if requests.is_sweep(job):
        sweep, source = requests.sweep(job, configuration)
        context = session.open_context(ctx)
        prepared = plan.prepare(context, sweep.table, sweep.points, source=source, argv=sys.argv)
        context = prepared.context
        sweeps.print_plan_line(sweep.name, sweep.table.kind, prepared)
        sweeps.confirm(prepared, yes=yes)
        document = sweep.document
        if sweep.points[0].spec.code.is_due and is_taken:
            from orchestrator.controller.code import snapshots

            sweep = snapshots.sweep_taken(context, sweep, source)
            document = snapshots.document_with(
                document, [point.spec.code for point in sweep.points], source
            )
        inherit = {name for point in sweep.points for name in point.spec.environment.inherit}
        fields: dict[str, Any] = {"kind": "sweep", "spec": specs.to_store(document)}
        fields["source"] = source
    else:
        request = requests.request(job, configuration, output.note)
        is_local = job_scripts.is_local(configuration, os.environ)
        context = session.open_context(ctx).with_scheduler("local" if is_local else "slurm")
        script = job_scripts.render(configuration, request, is_local=is_local)
        job_scripts.refuse_too_many_tasks(request, clusters.facts(context))
        intents.check(context, request.spec, script.text)
        if request.spec.code.is_due and is_taken:
            from orchestrator.controller.code import snapshots

            request = snapshots.request_taken(context, request)
        inherit = set(request.spec.environment.inherit)
        spec = json.loads(specs.to_json(request.spec))
        fields = {"kind": "job", "spec": spec, "source": request.source}
    return {**fields, "inherit": sorted(inherit)}, context


def _local_zone() -> str:
    """Return the IANA name of this machine's time zone, or UTC if it has none."""
    path = os.path.realpath("/etc/localtime")
    for name in (os.environ.get("TZ", "").removeprefix(":"), path.partition("/zoneinfo/")[2]):
        try:
            return calendars.Calendar("@daily", name).tz if name else "UTC"
        except errors.OrchestratorError:
            continue
    return "UTC"


@schedule_commands.command(
    "list",
    "orchestrator schedule list",
    table=schedule_tables.SCHEDULE_COLUMNS,
    changes="nothing",
    prints=("schedules",),
)
def list_schedules(
    context: contexts.Context,
    all_: bool = option("--all", "List also removed schedules."),
    form: str = options.form,
) -> None:
    """List schedules with the next planned time and the last outcome."""
    with context.store.reading() as work:
        states: Sequence[records.ScheduleState] = ("active", "paused")
        stored = work.schedules.all(states=(*states, "removed") if all_ else states)
    schedule_tables.print_schedules(management.summaries(context, stored), form)
    if stored:
        schedule_tables.note_controller(context, stored, with_last_pass=True)


@schedule_commands.command(
    "show", "orchestrator schedule show nightly", changes="nothing", prints=("schedule",)
)
def show(
    context: contexts.Context, name: str = _name, form: str | None = options.optional_form
) -> None:
    """Show the details of a schedule."""
    stored = management.find(context, name)
    (summary,) = management.summaries(context, [stored], limit=_SHOWN_TRIGGERS)
    with context.store.reading() as work:
        doubt = clock_check.stored_doubt(work)
    if doubt:
        output.note(doubt)
    form = form or "table"
    changed = management.source_change(stored)
    if output.is_json(form):
        row = schedule_rows.schedule_row(summary)
        row["source_changed"] = bool(changed)
        row["firings"] = list(map(schedule_rows.trigger_row, summary.triggers))
        output.print_rows("schedule", [row], (), form)
        return
    if form == "table":
        output.print_fields(schedule_rows.fields(summary), width=15)
        if summary.triggers:
            click.echo()
    if summary.triggers or form != "table":
        schedule_tables.print_triggers(summary.triggers, stored.tz, form)
    if changed:
        output.note(changed)


@schedule_commands.command(
    "next",
    "orchestrator schedule next nightly --count 10",
    changes="nothing",
    prints=("planned_times",),
)
def print_next(
    context: contexts.Context,
    name: str = _name,
    count: int = option(
        "--count", "Number of planned times.", click.IntRange(min=1, max=10_000), default=5
    ),
    form: str = options.form,
) -> None:
    """Show the next planned times of a schedule.

    Times are in the schedule's time zone and in UTC. A time that daylight saving time skips is
    planned for the moment after the gap; of a time that occurs twice, the first is used.
    Expressions whose minute or hour starts with * describe intervals and are not adjusted.
    """
    stored = management.find(context, name)
    calendar = stored.calendar
    after = max(context.clock.now(), stored.decided_until)
    rows = [
        {
            "planned_at": moment.at,
            "local": moment.at.astimezone(calendar.zone).isoformat(timespec="minutes"),
            "utc": f"{moment.at:%Y-%m-%dT%H:%MZ}",
            "note": calendars.clock_change_note(moment, calendar.zone),
        }
        for moment in itertools.islice(calendar.moments(after), count)
    ]
    output.print_rows("planned_times", rows, NEXT_COLUMNS, form)
    if stored.state == "paused":
        output.note(f"{name} is paused: `orchestrator schedule resume {name}` resumes it")


@schedule_commands.command(
    "history",
    "orchestrator schedule history nightly --format csv",
    table=schedule_tables.TRIGGER_COLUMNS,
    changes="nothing",
    prints=("firings",),
)
def history(
    context: contexts.Context,
    name: str = _name,
    limit: int = options.limit,
    form: str = options.form,
) -> None:
    """List the planned times of a schedule and their outcomes.

    The newest is first. Each planned time has exactly one entry: it fired, is waiting, was skipped
    for a reason, or failed (nothing could be submitted).
    """
    stored, triggers = management.history(context, name, limit + 1)
    schedule_tables.print_triggers(triggers[:limit], stored.tz, form)
    output.note_limit(triggers, limit)


@schedule_commands.command(
    "run", "orchestrator schedule run nightly", changes="other", prints=("firings",)
)
def run(context: contexts.Context, name: str = _name, form: str = options.form) -> None:
    """Submit the job or sweep of a schedule once, now.

    Also works while the schedule is paused. The overlap rule applies: with skip, exit code 6 while
    an earlier submission has not ended. If it cannot be submitted now, the controller submits it
    later.
    """
    on_demand.refresh(context, None)
    trigger, messages = management.run_now(context, name)
    for message in messages:
        output.note(message)
    schedule_tables.print_triggers([trigger], management.find(context, name).tz, form)
    if trigger.state == "failed":
        raise errors.OrchestratorError(f"nothing was submitted: {trigger.reason}")


@schedule_commands.command(
    "pause", "orchestrator schedule pause nightly", changes="other", prints=("schedules",)
)
def pause(
    context: contexts.Context, name: str = _name, form: str | None = options.optional_form
) -> None:
    """Pause a schedule until `schedule resume`.

    Planned times are skipped while it is paused. Submitted jobs are not affected.
    """
    _change_state(context, name, "paused", form)


@schedule_commands.command(
    "resume", "orchestrator schedule resume nightly", changes="other", prints=("schedules",)
)
def resume(
    context: contexts.Context, name: str = _name, form: str | None = options.optional_form
) -> None:
    """Resume a paused schedule with the next planned time."""
    _change_state(context, name, "active", form)


@schedule_commands.command(
    "remove", "orchestrator schedule remove nightly", changes="other", prints=("schedules",)
)
def remove(
    context: contexts.Context, name: str = _name, form: str | None = options.optional_form
) -> None:
    """Remove a schedule, but keep its history.

    Submitted jobs are not affected. The name can be used again.
    """
    _change_state(context, name, "removed", form)


def _change_state(
    context: contexts.Context, name: str, state: records.ScheduleState, form: str | None
) -> None:
    stored = management.change_state(context, name, state)
    if form is not None:
        schedule_tables.print_schedules(management.summaries(context, [stored]), form)
        return
    click.echo(f"Schedule {stored.name} is {stored.state}")


schedule_commands.add_command(schedule_install.install)
