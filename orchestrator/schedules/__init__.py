"""Schedules: planned times of a cron expression in a time zone, and what happens to each."""

from __future__ import annotations

from orchestrator.schedules.calendars import (
    ALIASES,
    Calendar,
    Moment,
    ScheduleError,
    clock_change_note,
)
from orchestrator.schedules.records import (
    Catchup,
    Decided,
    Overlap,
    Payload,
    Planned,
    Schedule,
    ScheduleState,
    Trigger,
)
from orchestrator.schedules.triggers import Step, decide, next_step
