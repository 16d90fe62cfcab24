"""Schedules: planned times of a cron expression in a zone, and what becomes of each. Pure."""

from __future__ import annotations

from orchestrator.schedules import deciding, times

__all__ = [
    "ALIASES",
    "Calendar",
    "Catchup",
    "Decided",
    "Moment",
    "Overlap",
    "Planned",
    "Rule",
    "ScheduleError",
    "Step",
    "Waiting",
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

Catchup = deciding.Catchup
Overlap = deciding.Overlap
Decided = deciding.Decided
Planned = deciding.Planned
Rule = deciding.Rule
Step = deciding.Step
Waiting = deciding.Waiting
decide = deciding.decide
next_step = deciding.next_step
