"""orchestrator schedule add."""

from __future__ import annotations

import json
import os
import sys
import typing
from collections.abc import Mapping
from typing import Any

import click

from orchestrator import config, errors, specs
from orchestrator.cli import output, settings, spec_options, times
from orchestrator.toml import values

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import clusters
from orchestrator.controller.session import contexts

#: Beyond it a time that is planned would lie where none can be stored.
_MOST_DAYS = 366


class Length(click.ParamType[int]):
    """A length of time, in seconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            seconds = times.seconds(str(value))
        except (ValueError, OverflowError):
            self.fail(f"write 90s, 10m, 6h or 1d (got {value!r})", param, ctx)
        if seconds > _MOST_DAYS * 86400:
            self.fail(f"write at most {_MOST_DAYS}d (got {value!r})", param, ctx)
        return seconds


@click.command(short_help="Submit a job or sweep at planned times from now on.")
@click.argument("schedule", metavar="NAME")
@spec_options.spec_options
@settings.scheduler_option
@click.option(
    "--cron",
    required=True,
    metavar="EXPRESSION",
    help='Minute, hour, day, month, weekday: "0 2 * * 1-5"; or @daily, @hourly, ...',
)
@click.option(
    "--tz", metavar="ZONE", help="IANA name: Europe/Oslo. Default: the zone of this machine."
)
@click.option(
    "--catchup",
    type=click.Choice(["latest", "skip", "all"]),
    default="latest",
    show_default=True,
    help="What was planned while no controller ran: submit the latest, none, or all of it.",
)
@click.option(
    "--grace",
    type=Length(),
    default="6h",
    show_default=True,
    metavar="LENGTH",
    help="What is later than this is skipped.",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "queue", "allow"]),
    help="While the one before has not ended: skip, wait for its end, or submit all the same. "
    "Default: skip; with --catchup all: queue.",
)
@click.option(
    "--jitter",
    type=Length(),
    default="0",
    metavar="LENGTH",
    help="Submit up to so much later, by the same each time a planned time is looked at.",
)
@click.option("--baseline", metavar="BASELINE", help="Hold results to it, and not to those before.")
@click.option("--replace", is_flag=True, help="Take the schedule of this name anew.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, however large the sweep is.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    schedule: str,
    cron: str,
    tz: str | None,
    catchup: str,
    grace: int,
    overlap: str | None,
    jitter: int,
    baseline: str | None,
    replace: bool,
    yes: bool,
    format_: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Submit a job or sweep at planned times from now on, under the name NAME.

    The spec is read now and kept, with the options given here, this folder and the variables that
    say how programs run: later changes of the file have no effect until `--replace`. Each planned
    time is submitted once, or skipped with a reason.

    \b
    Examples:
      orchestrator schedule add nightly --cron "0 2 * * 1-5" --tz Europe/Oslo examples/scaling.toml
      orchestrator schedule add hourly --cron @hourly --jitter 10m --overlap queue job.toml
    """
    if told := values.form_error("name", schedule):
        raise click.UsageError(f"NAME: {told}")
    from orchestrator import schedules

    calendar = schedules.Calendar(cron, tz or _zone_here())
    configuration = settings.configuration_of(ctx)
    wish: dict[str, Any] = {
        "name": schedule,
        "calendar": calendar,
        "catchup": catchup,
        "grace_seconds": grace,
        "overlap": overlap or ("queue" if catchup == "all" else "skip"),
        "jitter_seconds": jitter,
        "baseline": baseline,
        "argv": sys.argv,
    }
    wanted, context = _checked(ctx, options, configuration, yes=yes)
    from orchestrator.controller.reports import baselines
    from orchestrator.controller.schedules import management

    if baseline is not None:
        baselines.find(context, baseline)
    environ = dict(context.environ)
    if runs_dir := (ctx.obj or {}).get("runs_dir"):
        environ["ORCHESTRATOR_RUNS_DIR"] = str(runs_dir)
    context = _with(context, environ)
    stored = management.add(context, management.Wanted(**wish, **wanted), replace=replace)
    from orchestrator.cli import schedule_views

    (summary,) = management.summaries(context, [stored])
    if format_ is not None or as_json:
        chosen = output.chosen(format_, as_json)
        output.items(
            "schedules",
            [schedule_views.schedule_row(summary, chosen)],
            schedule_views.COLUMNS,
            chosen,
        )
    else:
        following = schedule_views.local(summary.next_at, stored.tz)
        click.echo(f"Schedule {stored.name}: next {following} ({stored.tz})")
    schedule_views.tell_who_acts(context, [stored])


def _with(context: contexts.Context, environ: Mapping[str, str]) -> contexts.Context:
    import dataclasses

    return dataclasses.replace(context, environ=environ)


def _checked(
    ctx: click.Context,
    options: Mapping[str, object],
    configuration: config.Configuration,
    *,
    yes: bool,
) -> tuple[dict[str, Any], contexts.Context]:
    """Return what is to be submitted, checked as if it were now, and the context that it needs."""
    if spec_options.is_sweep(options):
        sweep, source = spec_options.sweep(options, configuration)
        from orchestrator.cli import session, sweep_sending
        from orchestrator.controller.sweeps import plan

        context = session.open_context(ctx)
        prepared = plan.prepare_sweep(context, sweep, source=source, argv=sys.argv)
        output.say(sweep_sending.plan_line(sweep.name, sweep.table.kind, prepared))
        sweep_sending.ask(plan.needs_consent(context, prepared), yes=yes)
        inherit = {name for point in sweep.points for name in point.spec.environment.inherit}
        found = {"kind": "sweep", "spec": sweep.document}
        return {**found, "source": source, "inherit": sorted(inherit)}, prepared.context
    request = spec_options.request(options, configuration)
    from orchestrator.cli import session
    from orchestrator.controller.submission import intents, render

    context = session.open_context(ctx)
    here = render.is_local(configuration, os.environ)
    context = context.with_scheduler("local" if here else "slurm")
    script = render.render(configuration, request, is_local=here)
    render.refuse_too_many_tasks(request, clusters.facts(context))
    intents.check(context, request.spec, script.text)
    found = {"kind": "job", "spec": json.loads(specs.to_json(request.spec))}
    inherit = set(request.spec.environment.inherit)
    return {**found, "source": request.source, "inherit": sorted(inherit)}, context


def _zone_here() -> str:
    """Return the zone of this machine; UTC where it has no name."""
    from orchestrator import schedules

    path = os.path.realpath("/etc/localtime")
    for name in (os.environ.get("TZ", "").removeprefix(":"), path.partition("/zoneinfo/")[2]):
        try:
            return schedules.Calendar("@daily", name).tz if name else "UTC"
        except errors.OrchestratorError:
            continue
    return "UTC"
