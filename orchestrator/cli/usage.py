"""orchestrator usage."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import click

from orchestrator import jobs, prune
from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column
from orchestrator.controller.session import contexts, selection
from orchestrator.controller.usage import disk_use, job_usage
from orchestrator.jobs import naming
from orchestrator.rows import row_values
from orchestrator.text import sizes
from orchestrator.usage import totals

_HOURS = ("gpu_hours", "core_hours", "node_hours")
_COLUMNS = (
    Column("jobs", drop=2),
    Column("starts", drop=1),
    Column("gpu_hours"),
    Column("core_hours", drop=4),
    Column("node_hours", drop=3),
    Column("wasted", drop=5),
)
_DISK_COLUMNS = (
    Column("job"),
    Column("name", "name", drop=7),
    Column("total"),
    *(Column(kind, drop=len(prune.KINDS) - place) for place, kind in enumerate(prune.KINDS)),
)
_FIELDS = ("jobs", "starts", *_HOURS, "wasted_share", "unknown_gpus", "unknown_cpus")


def _parse_key(text: str) -> str:
    if text not in totals.KEYS and not text.partition("label:")[2]:
        raise click.BadParameter(f"{text!r} is not one of {', '.join(totals.KEYS)}, label:KEY")
    return text


@commands.command(
    "usage",
    "orchestrator usage",
    "orchestrator usage --by label:team --since 2026-11-01 --json",
    "orchestrator usage --disk --name digits-ddp",
    table=_COLUMNS,
    changes="nothing",
    prints=("usage", "disk_usage"),
)
def usage(
    context: contexts.Context,
    references: tuple[str, ...] = options.references,
    keys: tuple[str, ...] = option(
        "--by",
        f"Group by {', '.join(totals.KEYS)}, or label:KEY.",
        _parse_key,
        metavar="KEY",
        default=("month",),
        multiple=True,
    ),
    since: datetime.datetime | None = option(
        "-S --since", "Count from this time: 2026-11-01, yesterday, now-7days.", value_types.time
    ),
    until: datetime.datetime | None = option(
        "-E --until", "Count until this time.", value_types.time
    ),
    job_filter: options.JobFilter = options.job_filter,
    sweeps: tuple[str, ...] = option(
        "--sweep", "Only jobs of sweeps with this name.", "SWEEP", multiple=True
    ),
    disk: bool = option("--disk", "Show the disk use of run folders instead, the largest first."),
    form: str = options.form,
) -> None:
    """Sum up GPU-hours and core-hours, or disk use.

    Each start of a job counts; running jobs count up to now. WASTED is the share used by jobs that
    failed, timed out or were cancelled: of GPU-hours, or of core-hours if no GPU was used. Months
    are in local time. With --disk, --since refers to the submission or the end of a job,
    hard links count once, and at most 100,000 files are examined. Slurm is not queried.
    """
    rows = [job.row for word in references for job in selection.jobs_of(context, word)]
    query = jobs.JobQuery(rows=rows, limit=None, sweeps=sweeps, **vars(job_filter))
    if disk:
        ctx = click.get_current_context()
        is_grouped = ctx.get_parameter_source("keys") is not click.core.ParameterSource.DEFAULT
        options.refuse({"--disk lists jobs: remove --by and --until": is_grouped or until})
        _print_disk_use(context, dataclasses.replace(query, since=since), form)
        return
    starts, endless = job_usage.starts(context, query, since=since, until=until)
    groups = totals.grouped(starts, keys, since=since, until=until)
    # A job with several labels counts once.
    total = next(iter(totals.grouped(starts, (), since=since, until=until)), None)
    usages = [{**group.words, **row_values.fields_of(group, _FIELDS)} for group in groups]
    if form == "table" and total is not None and len(usages) > 1:
        usages.append({**row_values.fields_of(total, _FIELDS), keys[0]: "total"})
    columns = [*(Column(key, "name") for key in keys), *_COLUMNS]
    output.print_rows("usage", usages, columns, form, line=_line)
    if total is None:
        output.note("No job started in this period")
        return
    unknown = {"GPUs": total.unknown_gpus, "CPUs": total.unknown_cpus}
    for resource, count in unknown.items():
        if count:
            output.note(f"{resource} unknown for {output.count(count, 'start')}: counted as 0")
    if endless:
        output.note(f"Excluded: {output.count(endless, 'start')} without a known end")


def _print_disk_use(context: contexts.Context, query: jobs.JobQuery, form: str) -> None:
    use = disk_use.of(context, query)
    rows = [
        {
            "job": naming.names_of(folder.jobs),
            **row_values.fields_of(folder.jobs[0], ("row", "name", "run_dir")),
            **_disk_fields(folder.total_bytes, folder.sizes_bytes),
        }
        for folder in use.folders
    ]
    if form == "table" and len(rows) > 1:
        by_kind = {kind: sum(row[f"{kind}_bytes"] for row in rows) for kind in prune.KINDS}
        rows.append({"job": "total", **_disk_fields(sum(by_kind.values()), by_kind)})
    output.print_rows("disk_usage", rows, _DISK_COLUMNS, form, line=_disk_line)
    if use.snapshots_bytes:
        output.note(f"Code snapshots, which jobs share: {sizes.text(use.snapshots_bytes)}")
    if use.unexamined:
        count = output.count(use.unexamined, "submission")
        output.note(
            f"Only {disk_use.MAX_FILES:,} files were examined, of the newest jobs: {count} not or "
            "not completely. Select fewer jobs"
        )


def _disk_fields(total_bytes: int, sizes_bytes: Mapping[str, int]) -> dict[str, Any]:
    by_kind = {f"{kind}_bytes": sizes_bytes.get(kind, 0) for kind in prune.KINDS}
    return {"total_bytes": total_bytes, **by_kind}


def _disk_line(row: output.Row) -> dict[str, object]:
    names = ("total", *prune.KINDS)
    return {**row, **{name: sizes.text(row[f"{name}_bytes"]) for name in names}}


def _line(row: output.Row) -> dict[str, object]:
    share = row["wasted_share"]
    return {**row, "wasted": "" if share is None else f"{share * 100:.0f}%"}
