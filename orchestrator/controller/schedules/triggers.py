"""Decides about planned times and submits what is due, each once.

A trigger is marked as fired in the transaction that stores the intent of its job or sweep. So a
crash between any two steps neither loses nor doubles a submission. The next pass submits the
remaining points of an interrupted sweep.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json

from db import unit_of_work
from orchestrator import errors, specs, sweeps
from orchestrator.clocks import leaps
from orchestrator.controller.schedules import regression_check, submit_later
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import queries
from orchestrator.schedules import calendars, records
from orchestrator.schedules import triggers as rules
from orchestrator.text import nouns

#: Calls of rules.decide in one pass. After years without a controller later passes continue.
_MAX_ROUNDS = 10
#: `schedule run` submits its sweep itself. The controller takes over after this time.
_BY_HAND_SECONDS = 300
#: Someone may be editing a configuration file: it counts as invalid after this time.
_EDITING_SECONDS = 600

_TEMPORARY = (errors.SlurmError, errors.ConflictError, errors.RunFolderError)
_PERMANENT = (errors.SpecError, errors.TemplateError)


def step(context: contexts.Context) -> list[str]:
    """Decide, submit, and compare the results of ended runs; return messages."""
    with context.store.reading() as work:
        schedules = work.schedules.all()
        fired = work.schedules.triggers_without_verdict()
    messages: list[str] = []
    for trigger in fired:
        if trigger.sweep_row is not None:
            messages += _continue_sweep(context, trigger)
    for schedule in schedules:
        context.guard.check()
        messages += decide(context, schedule)
    with context.store.reading() as work:
        waiting = work.schedules.waiting_triggers()
    blocked: set[int] = set()
    for trigger in waiting:
        # If Slurm is unreachable or an earlier run is live, all triggers of the schedule wait.
        if trigger.schedule_row not in blocked:
            context.guard.check()
            messages += attempt(context, trigger)
            is_due = not trigger.by_hand and trigger.due_at <= context.clock.now()
            if is_due and _is_waiting(context, trigger):
                blocked.add(trigger.schedule_row)
    return [*messages, *regression_check.step(context)]


def next_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    """Return when the next trigger is planned or due after a moment; None: none."""
    with context.store.reading() as work:
        schedules = work.schedules.all()
        waiting = work.schedules.waiting_triggers()
    times = [trigger.due_at for trigger in waiting if trigger.due_at > after]
    for schedule in schedules:
        # Each pass reports an unknown time zone.
        with contextlib.suppress(calendars.ScheduleError):
            times += filter(None, [schedule.next_at(after)])
    return min(times, default=None)


def decide(context: contexts.Context, schedule: records.Schedule) -> list[str]:
    """Store a trigger for each planned time up to now; return messages about skipped ones."""
    skipped: list[records.Planned] = []
    for _ in range(_MAX_ROUNDS):
        now = context.clock.now()
        schedule = _not_in_future(context, schedule, now)
        try:
            decided = rules.decide(schedule, schedule.decided_until, now)
        except calendars.ScheduleError as exc:
            # Another host, which knows the time zone, decides.
            return [f"Schedule {schedule.name}: {exc}"]
        if not decided.planned:
            break
        with context.store.writing() as work:
            if not work.schedules.add_triggers(schedule, decided, now):
                # Another process changed it or decided: the next pass continues.
                break
            schedule = work.schedules.get(schedule.row)
        skipped += [planned for planned in decided.planned if planned.state == "skipped"]
        if not decided.more:
            break
        context.guard.check()
    if not skipped or schedule.state == "paused":
        return []
    count = nouns.count(len(skipped), "planned time")
    if any(planned.first_at is not None for planned in skipped):
        count = f"all planned times until {skipped[-1].planned_at:%Y-%m-%dT%H:%MZ}"
    return [f"Schedule {schedule.name}: skipped {count} ({skipped[-1].reason})"]


def _not_in_future(
    context: contexts.Context, schedule: records.Schedule, now: datetime.datetime
) -> records.Schedule:
    """Move `decided_until` back to now, or to the newest history entry, if it is in the future.

    Then the schedule was added by a host whose clock was ahead.
    """
    if schedule.decided_until - now <= leaps.TOLERANCE:
        return schedule
    with context.store.writing() as work:
        newest = work.schedules.last_planned_at(schedule.row)
        until = now if newest is None else max(now, newest)
        if until < schedule.decided_until:
            work.schedules.change(schedule, decided_until=until)
        return work.schedules.get(schedule.row)


def attempt(context: contexts.Context, trigger: records.Trigger) -> list[str]:
    """Submit what a waiting trigger stands for, skip it, or let it wait; return messages."""
    with context.store.reading() as work:
        schedule = work.schedules.get(trigger.schedule_row)
        waiting = work.schedules.waiting_triggers()
        is_live = submit_later.any_live(work, schedule)
    others = [
        other
        for other in waiting
        if other.schedule_row == schedule.row and other.row != trigger.row
    ]
    due = _DueTrigger(context=context, schedule=schedule, trigger=trigger)
    now = context.clock.now()
    try:
        action, reason = rules.next_step(schedule, trigger, now, others=others, is_live=is_live)
    except calendars.ScheduleError as exc:
        return due.keep(str(exc))
    if action == "skip":
        return due.end("skipped", reason or "")
    if action == "keep":
        return due.keep(reason)
    try:
        return due.report(due.submit())
    except errors.FencedError:
        raise
    except (*_TEMPORARY, *_PERMANENT, errors.ConfigurationError) as exc:
        if not _is_waiting(context, trigger):
            return due.report(str(exc))
        # `schedule run` reports an invalid configuration at once.
        age = context.clock.now() - max(trigger.due_at, trigger.decided_at)
        is_new = not trigger.by_hand and age.total_seconds() < _EDITING_SECONDS
        is_edited = isinstance(exc, errors.ConfigurationError) and is_new
        if isinstance(exc, _TEMPORARY) or is_edited:
            return due.keep(str(exc))
        return due.end("failed", str(exc))


def _is_waiting(context: contexts.Context, trigger: records.Trigger) -> bool:
    with context.store.reading() as work:
        return work.schedules.trigger(trigger.row).state == "waiting"


def _continue_sweep(context: contexts.Context, trigger: records.Trigger) -> list[str]:
    """Submit the points of a fired sweep for which no intent is stored yet.

    Refreshes submit the others.
    """
    from orchestrator.controller.sweeps import submit_points

    assert trigger.sweep_row is not None
    with context.store.reading() as work:
        sweep = work.sweeps.get(trigger.sweep_row)
        assert sweep is not None, "sweeps are never deleted"
        groups = work.sweeps.groups([sweep.row]).get(sweep.row, [])
        schedule = work.schedules.get(trigger.schedule_row)
    started = [group for group in groups if group.state is not None]
    age_seconds = (context.clock.now() - trigger.decided_at).total_seconds()
    is_submitting = trigger.by_hand and age_seconds < _BY_HAND_SECONDS
    if sweep.state != "open" or len(started) == len(groups) or is_submitting:
        return []
    context.guard.check()
    due = _DueTrigger(context=context, schedule=schedule, trigger=trigger)
    try:
        there, payload = due.restore()
        result = submit_points.submit_remaining(there, sweep, payload.argv)
        return due.report(submit_later.points_message(result)) if result is not None else []
    except errors.FencedError:
        raise
    except (submit_points.BaselineError, *_PERMANENT) as exc:
        if isinstance(exc, submit_points.BaselineError) and not all(map(queries.ended, started)):
            return []
        # The remaining points can never be submitted.
        remaining, _ = queries.close(context, sweep)
        with context.store.writing() as work:
            work.schedules.change_trigger(trigger, reason=str(exc))
        points = f"{remaining} points of {sweep.name} (@{sweep.row})"
        return due.report(f"{points} will not be submitted: {exc}")
    except (*_TEMPORARY, errors.ConfigurationError) as exc:
        return due.keep(str(exc))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DueTrigger:
    """A trigger that is to submit something."""

    context: contexts.Context
    schedule: records.Schedule
    trigger: records.Trigger

    def report(self, text: str) -> list[str]:
        planned = f"{self.trigger.planned_at:%Y-%m-%dT%H:%MZ}"
        title = "by hand:" if self.trigger.by_hand else planned
        return [f"Schedule {self.schedule.name}: {title} {text}"]

    def keep(self, reason: str | None) -> list[str]:
        """Store why the trigger waits; report a new reason."""
        if reason == self.trigger.reason:
            return []
        with self.context.store.writing() as work:
            work.schedules.change_trigger(self.trigger, reason=reason)
        return self.report(reason) if reason else []

    def end(self, state: str, reason: str) -> list[str]:
        changes = {"state": state, "reason": reason, "decided_at": self.context.clock.now()}
        with self.context.store.writing() as work:
            if not work.schedules.change_trigger(self.trigger, **changes):
                return []
        return self.report(f"{state} ({reason})")

    def restore(self) -> tuple[contexts.Context, records.Payload]:
        """Return the context in which the schedule was added, and what it submits."""
        with self.context.store.reading() as work:
            payload = work.schedules.payload(self.schedule.row)
        context = submit_later.restore(
            self.context,
            self.schedule,
            payload.environment,
            is_code_stored=bool(payload.spec.get("code", {}).get("tree")),
        )
        return context, payload

    def submit(self) -> str:
        """Submit the job or sweep; return a message."""
        context, payload = self.restore()
        source = self.schedule.source
        if self.schedule.kind == "job":
            spec = specs.from_json(json.dumps(payload.spec))
            return submit_later.submit_job(context, spec, source, payload.argv, self._mark_fired)
        sweep = sweeps.expand(specs.stored(payload.spec, source), context.profile)
        # Runs may overlap, and unfinished sweeps need different names.
        form = "%Y%m%dT%H%M%SZ" if self.trigger.by_hand else "%Y%m%dT%H%MZ"
        sweep = dataclasses.replace(sweep, name=f"{sweep.name}-{self.trigger.planned_at:{form}}")
        return submit_later.submit_sweep(context, sweep, source, payload.argv, self._mark_fired)

    def _mark_fired(self, work: unit_of_work.UnitOfWork, **rows: int) -> None:
        now = self.context.clock.now()
        changes = {"state": "fired", "reason": None, "decided_at": now, **rows}
        if not work.schedules.change_trigger(self.trigger, **changes):
            raise errors.ConflictError("another process has fired it at the same time")
