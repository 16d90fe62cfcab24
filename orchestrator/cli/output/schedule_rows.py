"""Schedules and their triggers as rows. The JSON fields are a contract."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.cli.output import job_rows
from orchestrator.controller.schedules import management
from orchestrator.schedules import records

SCHEDULE_COLUMNS = ("name", "state", "cron", "tz", "kind", "next", "last", "outcome")
TRIGGER_COLUMNS = ("planned", "state", "of", "verdict", "reason")


def schedule_row(summary: management.Summary, form: str) -> dict[str, object]:
    stored = summary.stored
    newest = summary.triggers[0] if summary.triggers else None
    names = [field.name for field in dataclasses.fields(stored)]
    hidden = ("version", "source_hash", "decided_until")
    row = output.fields_of(stored, (name for name in names if name not in hidden))
    if output.is_json(form):
        last = None if newest is None else trigger_row(newest, stored.tz, form)
        return {**row, "next_at": summary.next_at, "last": last}
    return {
        **row,
        "next": local_time(summary.next_at, stored.tz),
        "last": newest and local_time(newest.planned_at, stored.tz),
        "outcome": newest and (newest.verdict or newest.state),
    }


def trigger_row(trigger: records.Trigger, tz: str, form: str) -> dict[str, object]:
    if output.is_json(form):
        planned = ("row", "planned_at", "due_at", "by_hand", "state", "reason", "decided_at")
        return {
            **output.fields_of(trigger, planned),
            "sweep": trigger.sweep_row,
            "job": trigger.job_row,
            **output.fields_of(trigger, ("verdict", "verdict_detail", "verdict_at")),
        }
    return {
        "planned": local_time(trigger.planned_at, tz) + (" by hand" if trigger.by_hand else ""),
        "state": trigger.state,
        "of": job_rows.reference_to(trigger),
        "verdict": trigger.verdict,
        "reason": trigger.verdict_detail.get("sentence") or trigger.reason,
    }


def trigger_rows(
    triggers: Sequence[records.Trigger], tz: str, form: str
) -> list[dict[str, object]]:
    return [trigger_row(trigger, tz, form) for trigger in triggers]


def local_time(at: datetime.datetime | None, tz: str) -> str:
    """Return a time in the schedule's time zone; "" for None."""
    if at is None:
        return ""
    try:
        zone: datetime.tzinfo = zoneinfo.ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        zone = datetime.UTC
    return at.astimezone(zone).isoformat(timespec="minutes")
