"""orchestrator usage."""

from __future__ import annotations

import datetime
from typing import Any

import click

from orchestrator import jobs
from orchestrator.cli import options, output, session
from orchestrator.controller.session import contexts
from orchestrator.controller.usage import job_usage
from orchestrator.usage import totals

_HOURS = ("gpu_hours", "core_hours", "node_hours")
_NUMBERS = ("jobs", "starts", *_HOURS, "wasted")
_FIELDS = ("jobs", "starts", *_HOURS, "wasted_share", "unknown_gpus", "unknown_cpus")


def _parse_key(text: str) -> str:
    if text not in totals.KEYS and not text.partition("label:")[2]:
        raise click.BadParameter(f"{text!r} is not one of {', '.join(totals.KEYS)}, label:KEY")
    return text


@click.command("usage")
@options.jobs_argument
@options.option(
    "--by",
    f"Group by {', '.join(totals.KEYS)}, or label:KEY.",
    _parse_key,
    metavar="KEY",
    dest="keys",
    default=("month",),
    multiple=True,
)
@options.option(
    "-S --since", "Count from this time: 2026-11-01, yesterday, now-7days.", options.time
)
@options.option("-E --until", "Count until this time.", options.time)
@options.job_filter
@options.option(
    "--sweep", "Only jobs of sweeps with this name.", "SWEEP", dest="sweeps", multiple=True
)
@options.format_option
@session.with_context
def usage(
    context: contexts.Context,
    references: tuple[str, ...],
    keys: tuple[str, ...],
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    form: str,
    **filters: Any,
) -> None:
    """Sum up GPU-hours and core-hours.

    Each start of a job counts; running jobs count up to now. WASTED is the share used by jobs that
    failed, timed out or were cancelled: of GPU-hours, or of core-hours if no GPU was used. Months
    are in local time. Slurm is not asked.

    \b
    Examples:
      orchestrator usage
      orchestrator usage --by label:team --since 2026-11-01 --json
    """
    rows = [job.row for word in references for job in session.jobs_of(context, word)]
    query = jobs.JobQuery(rows=rows, limit=None, **filters)
    starts, endless = job_usage.starts(context, query, since=since, until=until)
    groups = totals.grouped(starts, keys, since=since, until=until)
    # A job with several labels counts once.
    total = next(iter(totals.grouped(starts, (), since=since, until=until)), None)
    if output.is_json(form):
        items = [{**group.words, **output.fields_of(group, _FIELDS)} for group in groups]
        output.print_rows("usage", items, (), form)
    else:
        lines = list(map(_line, groups))
        if form == "table" and total is not None and len(lines) > 1:
            lines.append({**_line(total), keys[0]: "total"})
        output.print_rows("usage", lines, (*keys, *_NUMBERS), form)
    if total is None:
        output.note("No job started in this period")
        return
    unknown = {"GPUs": total.unknown_gpus, "CPUs": total.unknown_cpus}
    for resource, count in unknown.items():
        if count:
            output.note(f"{resource} unknown for {output.count(count, 'start')}: counted as 0")
    if endless:
        output.note(f"Excluded: {output.count(endless, 'start')} without a known end")


def _line(group: totals.Usage) -> dict[str, object]:
    share = group.wasted_share
    return {
        **group.words,
        "jobs": group.jobs,
        "starts": group.starts,
        **{name: f"{getattr(group, name):.2f}" for name in _HOURS},
        "wasted": "" if share is None else f"{share * 100:.0f}%",
    }
