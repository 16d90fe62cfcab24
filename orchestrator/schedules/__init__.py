"""Schedules: planned times of a cron expression in a zone, and what becomes of each. Pure."""

from __future__ import annotations

from orchestrator.schedules import deciding, records, times

__all__ = [
    "ALIASES",
    "Calendar",
    "Catchup",
    "Decided",
    "Moment",
    "Overlap",
    "Payload",
    "Planned",
    "Rule",
    "Schedule",
    "ScheduleError",
    "ScheduleState",
    "Step",
    "Trigger",
    "clock_change",
    "decide",
    "moments",
    "next_step",
    "note",
]

ALIASES = times.ALIASES
Calendar = times.Calendar
Moment = times.Moment
ScheduleError = times.ScheduleError
clock_change = times.clock_change
moments = times.moments
note = times.note

Catchup = records.Catchup
Overlap = records.Overlap
Decided = records.Decided
Planned = records.Planned
Rule = records.Rule
Schedule = records.Schedule
ScheduleState = records.ScheduleState
Payload = records.Payload
Trigger = records.Trigger
Step = deciding.Step
decide = deciding.decide
next_step = deciding.next_step
