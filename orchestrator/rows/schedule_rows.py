"""Schedules and their triggers as rows. The JSON fields are a contract."""

from __future__ import annotations

import datetime
import zoneinfo

from orchestrator.controller.schedules import management
from orchestrator.rows import row_values
from orchestrator.rows.contract import service as contract
from orchestrator.schedules import records
from orchestrator.toml import values


def schedule_row(summary: management.Summary) -> dict[str, object]:
    """Return a schedule as JSON has it, with its next time and its newest trigger."""
    last = trigger_row(summary.triggers[0]) if summary.triggers else None
    return row_values.row_of(
        contract.ScheduleRow, summary.stored, next_at=summary.next_at, last=last
    )


def fields(summary: management.Summary) -> list[tuple[str, str]]:
    """Return labels and values for people."""
    stored = summary.stored
    jitter = f", up to {values.elapsed(stored.jitter_seconds)} later"
    baseline = f"baseline {stored.baseline}" if stored.baseline else "earlier results"
    return [
        ("Schedule", f"{stored.name} ({stored.state})"),
        ("Planned", f"{stored.cron} in {stored.tz}{jitter if stored.jitter_seconds else ''}"),
        ("Next", local_time(summary.next_at, stored.tz) or "-"),
        ("Submits", f"{stored.kind} {stored.source}, from {stored.folder}"),
        ("Profile", f"{stored.profile}, on {stored.cluster}"),
        ("Catch-up", f"{stored.catchup}, at most {values.elapsed(stored.grace_seconds)} late"),
        ("Overlap", stored.overlap),
        ("Compared with", baseline),
        ("Added", f"{stored.created_at.astimezone():%Y-%m-%dT%H:%M:%S%z}"),
    ]


def trigger_row(trigger: records.Trigger) -> dict[str, object]:
    """Return a planned time as JSON has it."""
    return row_values.row_of(
        contract.TriggerRow, trigger, sweep=trigger.sweep_row, job=trigger.job_row
    )


def local_time(at: datetime.datetime | None, tz: str) -> str:
    """Return a time in the schedule's time zone; "" for None."""
    return "" if at is None else at.astimezone(zone_of(tz)).isoformat(timespec="minutes")


def zone_of(tz: str) -> datetime.tzinfo:
    """Return a time zone; UTC if this host does not know it."""
    try:
        return zoneinfo.ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        return datetime.UTC
