"""Schedules and firings as rows."""

from __future__ import annotations

import dataclasses
import datetime
import zoneinfo
from collections.abc import Sequence

from orchestrator import schedules
from orchestrator.cli import output, views
from orchestrator.controller.schedules import management
from orchestrator.controller.session import contexts

COLUMNS = ("name", "state", "cron", "tz", "kind", "next", "last", "outcome")
_CURE = (
    "`orchestrator schedule install --cron --write` sets one up, and `orchestrator serve` is one."
)
FIRING_COLUMNS = ("planned", "state", "of", "verdict", "reason")


def local(at: datetime.datetime | None, tz: str) -> str:
    """Return a time on the clocks of the schedule's zone; "" for none."""
    if at is None:
        return ""
    try:
        zone: datetime.tzinfo = zoneinfo.ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        zone = datetime.UTC
    return at.astimezone(zone).isoformat(timespec="minutes")


def schedule_row(summary: management.Summary, chosen: str) -> dict[str, object]:
    """Return a schedule as a row; plain in JSON."""
    stored = summary.stored
    newest = summary.firings[0] if summary.firings else None
    row: dict[str, object] = {
        field.name: getattr(stored, field.name)
        for field in dataclasses.fields(stored)
        if field.name not in ("version", "source_hash", "decided_until")
    }
    if output.is_json(chosen):
        row["next_at"] = summary.next_at
        row["last"] = None if newest is None else firing_row(newest, stored.tz, chosen)
        return row
    return {
        **row,
        "next": local(summary.next_at, stored.tz),
        "last": "" if newest is None else local(newest.planned_at, stored.tz),
        "outcome": "" if newest is None else newest.verdict or newest.state,
    }


def firing_row(firing: schedules.Trigger, tz: str, chosen: str) -> dict[str, object]:
    """Return a firing as a row; plain in JSON."""
    if output.is_json(chosen):
        return {
            "row": firing.row,
            "planned_at": firing.planned_at,
            "due_at": firing.due_at,
            "by_hand": firing.by_hand,
            "state": firing.state,
            "reason": firing.reason,
            "decided_at": firing.decided_at,
            "sweep": firing.sweep_row,
            "job": firing.job_row,
            "verdict": firing.verdict,
            "verdict_detail": firing.verdict_detail,
            "verdict_at": firing.verdict_at,
        }
    return {
        "planned": local(firing.planned_at, tz) + (" by hand" if firing.by_hand else ""),
        "state": firing.state,
        "of": views.named(firing),
        "verdict": firing.verdict,
        "reason": firing.verdict_detail.get("sentence") or firing.reason,
    }


def firing_rows(
    firings: Sequence[schedules.Trigger], tz: str, chosen: str
) -> list[dict[str, object]]:
    return [firing_row(one, tz, chosen) for one in firings]


def tell_who_acts(
    context: contexts.Context, found: Sequence[schedules.Schedule], *, at_all: bool = False
) -> None:
    """Say where no controller looks at these schedules, and what to do; `at_all`: else its pass."""
    from orchestrator.controller.service import health

    state = health.examine(context.store, context.configuration.state_dir, context.clock.now())
    newest = state.newest
    if state.lease is None or not state.lease.fence:
        context.reporter.info(f"No controller looks at schedules yet: {_CURE}")
        return
    by_ticks = newest is None or newest.command != "serve"
    late_seconds = health.TICKS_LATE_SECONDS if by_ticks else health.LATE_SECONDS
    overlooked = management.overlooked(context, found, late_seconds=late_seconds)
    # One that acts, with a step that fails, needs no other beside it.
    fails = newest is not None and newest.failing_since is not None
    cure = [] if fails and not overlooked else [_CURE]
    if told := [*state.problems, *overlooked]:
        context.reporter.info(" ".join([*told, *cure]))
    elif at_all and newest is not None:
        context.reporter.info(health.last_pass_message(newest))
