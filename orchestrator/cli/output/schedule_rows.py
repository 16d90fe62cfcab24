"""Schedules and their triggers as rows. The JSON fields are a contract."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.cli.output import Column, job_rows
from orchestrator.controller.schedules import management
from orchestrator.schedules import records

SCHEDULE_COLUMNS = (
    Column("name", "name"),
    Column("state"),
    Column("cron", drop=4),
    Column("tz", drop=2),
    Column("kind", drop=1),
    Column("next"),
    Column("last", drop=3),
    Column("outcome"),
)
TRIGGER_COLUMNS = (
    Column("planned"),
    Column("state"),
    Column("of", drop=2),
    Column("verdict", drop=1),
    Column("reason", "text"),
)
_HIDDEN = ("version", "source_hash", "decided_until")


def schedule_row(summary: management.Summary) -> dict[str, object]:
    fields = dataclasses.fields(summary.stored)
    names = [field.name for field in fields if field.name not in _HIDDEN]
    last = trigger_row(summary.triggers[0]) if summary.triggers else None
    row = output.fields_of(summary.stored, names)
    return {**row, "next_at": summary.next_at, "last": last}


def print_schedules(summaries: Sequence[management.Summary], form: str) -> None:
    rows = list(map(schedule_row, summaries))
    output.print_rows("schedules", rows, SCHEDULE_COLUMNS, form, line=_schedule_line)


def _schedule_line(row: output.Row) -> output.Row:
    last, tz = row["last"] or {}, row["tz"]
    return {
        **row,
        "next": local_time(row["next_at"], tz),
        "last": local_time(last.get("planned_at"), tz),
        "outcome": last.get("verdict") or last.get("state"),
    }


def trigger_row(trigger: records.Trigger) -> dict[str, object]:
    planned = ("row", "planned_at", "due_at", "by_hand", "state", "reason", "decided_at")
    return {
        **output.fields_of(trigger, planned),
        "sweep": trigger.sweep_row,
        "job": trigger.job_row,
        **output.fields_of(trigger, ("verdict", "verdict_detail", "verdict_at")),
    }


def print_triggers(triggers: Sequence[records.Trigger], tz: str, form: str) -> None:
    """Print triggers; all formats but JSON show times in the time zone `tz`."""

    def line(row: output.Row) -> output.Row:
        return {
            "planned": local_time(row["planned_at"], tz) + (" by hand" if row["by_hand"] else ""),
            "state": row["state"],
            "of": job_rows.reference_to(row["sweep"], row["job"]),
            "verdict": row["verdict"],
            "reason": row["verdict_detail"].get("sentence") or row["reason"],
        }

    output.print_rows("firings", list(map(trigger_row, triggers)), TRIGGER_COLUMNS, form, line)


def local_time(at: datetime.datetime | None, tz: str) -> str:
    """Return a time in the schedule's time zone; "" for None."""
    if at is None:
        return ""
    try:
        zone: datetime.tzinfo = zoneinfo.ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        zone = datetime.UTC
    return at.astimezone(zone).isoformat(timespec="minutes")
