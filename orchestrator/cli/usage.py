"""orchestrator usage."""

from __future__ import annotations

import datetime

import click

from orchestrator import jobs
from orchestrator.cli import completing, output, session, times
from orchestrator.controller.usage import usage as used
from orchestrator.usage import totals

_NUMBERS = ("jobs", "starts", "gpu_hours", "core_hours", "node_hours", "wasted")


@click.command(short_help="Add up GPU-hours and core-hours.")
@click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
)
@click.option(
    "--by",
    "keys",
    multiple=True,
    default=("month",),
    show_default=True,
    metavar="KEY",
    help=f"{', '.join(totals.KEYS)}, or label:KEY for its values; may be repeated.",
)
@click.option("-S", "--since", help="From then on: 2026-11-01, yesterday, now-7days.")
@click.option("-E", "--until", help="Until then.")
@click.option("--name", "names", multiple=True, help="Only jobs of this name.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with this label.")
@click.option("--sweep", "sweeps", multiple=True, help="Only jobs of sweeps of this name.")
@click.option("-p", "--partition", "partitions", multiple=True, help="Only of this partition.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    keys: tuple[str, ...],
    since: str | None,
    until: str | None,
    names: tuple[str, ...],
    labels: tuple[str, ...],
    sweeps: tuple[str, ...],
    partitions: tuple[str, ...],
    format_: str | None,
    as_json: bool,
) -> None:
    """Add up what jobs have had: GPUs, CPUs and nodes, times hours.

    Each start of a job counts, and what runs counts as far as it is. `wasted` is the share of what
    failed, was cancelled or ran out of time: of GPU-hours, without GPUs of core-hours. Months end
    at midnight here. Slurm is not asked.

    \b
    Examples:
      orchestrator usage
      orchestrator usage --by label:team --since 2026-11-01 --json
    """
    for key in keys:
        if key not in totals.KEYS and not key.partition("label:")[2]:
            known = ", ".join(totals.KEYS)
            raise click.BadParameter(f"{key!r} is none of {known}, label:KEY", param_hint="'--by'")
    context = session.open_context(ctx)
    now = context.clock.now()
    begin = None if since is None else _time(since, now, "'-S' / '--since'")
    end = None if until is None else _time(until, now, "'-E' / '--until'")
    rows = [job.row for word in references for job in session.jobs_of(context, word)]
    wanted = jobs.JobQuery(
        rows=rows, names=names, labels=labels, sweeps=sweeps, partitions=partitions, limit=None
    )
    told = used.of(context, wanted, keys, since=begin, until=end)
    chosen = output.chosen(format_, as_json)
    if output.is_json(chosen):
        output.items("usage", [_row(one) for one in told.usages], (), chosen)
    else:
        lines = [_line(one) for one in told.usages]
        if chosen == "table" and told.total is not None and len(lines) > 1:
            lines.append({**_line(told.total), keys[0]: "total"})
        output.items("usage", lines, (*keys, *_NUMBERS), chosen)
    for lacking in _lacking(told):
        context.reporter.info(lacking)


def _time(text: str, now: datetime.datetime, option: str) -> datetime.datetime:
    try:
        return times.since(text, now)
    except ValueError as exc:
        told = "write 2026-11-20, 2026-11-20T10:05, 10:05, yesterday, 3days or now-2hours"
        raise click.BadParameter(f"{text!r} is no time; {told}", param_hint=option) from exc


def _row(one: totals.Usage) -> dict[str, object]:
    return {
        **one.words,
        "jobs": one.jobs,
        "starts": one.starts,
        "gpu_hours": one.gpu_hours,
        "core_hours": one.core_hours,
        "node_hours": one.node_hours,
        "wasted_share": one.wasted_share,
        "unknown_gpus": one.unknown_gpus,
        "unknown_cpus": one.unknown_cpus,
    }


def _line(one: totals.Usage) -> dict[str, object]:
    hours = {
        name: f"{value:.2f}"
        for name, value in (
            ("gpu_hours", one.gpu_hours),
            ("core_hours", one.core_hours),
            ("node_hours", one.node_hours),
        )
    }
    wasted = "" if one.wasted_share is None else f"{one.wasted_share * 100:.0f}%"
    return {**one.words, "jobs": one.jobs, "starts": one.starts, **hours, "wasted": wasted}


def _lacking(told: used.Told) -> list[str]:
    if told.total is None:
        return ["no job has begun in that time"]
    lacking = []
    for what, count in (("GPUs", told.total.unknown_gpus), ("CPUs", told.total.unknown_cpus)):
        if count:
            lacking.append(
                f"how many {what} it had is not known of {count} starts: they count as 0"
            )
    if told.endless:
        lacking.append(f"left out: {told.endless} starts whose end nobody knows")
    return lacking
