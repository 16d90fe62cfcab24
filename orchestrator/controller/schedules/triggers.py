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
from collections.abc import Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, schedules, specs, sweeps
from orchestrator.clocks import leaps
from orchestrator.controller.schedules import regression_check, stored_context, submitted
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.sweeps import queries
from orchestrator.toml import documents

#: Calls of schedules.decide in one pass. After years without a controller later passes continue.
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
        stored = work.schedules.all()
        fired = work.schedules.triggers_without_verdict()
    messages: list[str] = []
    for trigger in fired:
        if trigger.sweep_row is not None:
            messages += _continue_sweep(context, trigger)
    for schedule in stored:
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
        active = [schedule for schedule in work.schedules.all() if schedule.state == "active"]
        waiting = work.schedules.waiting_triggers()
    times = [trigger.due_at for trigger in waiting if trigger.due_at > after]
    for schedule in active:
        # Each pass reports an unknown time zone.
        with contextlib.suppress(schedules.ScheduleError):
            later = schedule.calendar.after(max(after, schedule.decided_until))
            times += [at for at in [next(later, None)] if at is not None]
    return min(times, default=None)


def decide(context: contexts.Context, schedule: schedules.Schedule) -> list[str]:
    """Store a trigger for each planned time up to now; return messages about skipped ones."""
    skipped: list[schedules.Planned] = []
    for _ in range(_MAX_ROUNDS):
        now = context.clock.now()
        schedule = _not_in_future(context, schedule, now)
        try:
            decided = schedules.decide(schedule, schedule.decided_until, now)
        except schedules.ScheduleError as exc:
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
    count = f"{len(skipped)} planned time" + ("s" if len(skipped) > 1 else "")
    if any(planned.first_at is not None for planned in skipped):
        count = f"all planned times until {skipped[-1].planned_at:%Y-%m-%dT%H:%MZ}"
    return [f"Schedule {schedule.name}: skipped {count} ({skipped[-1].reason})"]


def _not_in_future(
    context: contexts.Context, schedule: schedules.Schedule, now: datetime.datetime
) -> schedules.Schedule:
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


def attempt(context: contexts.Context, trigger: schedules.Trigger) -> list[str]:
    """Submit what a waiting trigger stands for, skip it, or let it wait; return messages."""
    with context.store.reading() as work:
        schedule = work.schedules.get(trigger.schedule_row)
        others = [
            other
            for other in work.schedules.waiting_triggers()
            if other.schedule_row == schedule.row and other.row != trigger.row
        ]
        is_live = submitted.any_live(work, schedule)
    if schedule.state == "removed":
        return _end(context, schedule, trigger, "skipped", "removed")
    try:
        action, reason = schedules.next_step(
            schedule, trigger, context.clock.now(), others=others, is_live=is_live
        )
    except schedules.ScheduleError as exc:
        return _keep(context, schedule, trigger, str(exc))
    if action is schedules.Step.SKIP:
        return _end(context, schedule, trigger, "skipped", reason or "")
    if action is schedules.Step.KEEP:
        return _keep(context, schedule, trigger, reason)
    try:
        if obstacle := _obstacle(context, schedule):
            return _keep(context, schedule, trigger, obstacle)
        with context.store.reading() as work:
            payload = work.schedules.payload(schedule.row)
        submit = _submit_sweep if schedule.kind == "sweep" else _submit_job
        message = submit(restore(context, schedule, payload), schedule, trigger, payload)
    except (errors.DatabaseError, errors.FencedError):
        raise
    except (*_TEMPORARY, *_PERMANENT, errors.ConfigurationError) as exc:
        message = str(exc)
        if _is_waiting(context, trigger):
            is_editing = isinstance(exc, errors.ConfigurationError) and _is_new(context, trigger)
            if isinstance(exc, _TEMPORARY) or is_editing:
                return _keep(context, schedule, trigger, message)
            return _end(context, schedule, trigger, "failed", message)
    return [f"Schedule {schedule.name}: {message}"]


def _is_new(context: contexts.Context, trigger: schedules.Trigger) -> bool:
    """Tell whether the configuration may only be invalid because someone is editing it.

    `schedule run` reports an invalid configuration at once.
    """
    since = max(trigger.due_at, trigger.decided_at)
    seconds = (context.clock.now() - since).total_seconds()
    return not trigger.by_hand and seconds < _EDITING_SECONDS


def restore(
    context: contexts.Context, schedule: schedules.Schedule, payload: schedules.Payload
) -> contexts.Context:
    """Return the context in which the schedule was added. Raises ConfigurationError."""
    return stored_context.restore(
        context,
        folder=Path(schedule.folder),
        environment=payload.environment,
        profile=schedule.profile,
        scheduler=schedule.scheduler,
    )


def _obstacle(context: contexts.Context, schedule: schedules.Schedule) -> str:
    """Return why this host cannot submit the schedule's jobs; "": it can."""
    cluster = clusters.facts(context.with_scheduler(schedule.scheduler)).cluster
    if cluster != schedule.cluster:
        return f"the schedule is for cluster {schedule.cluster}, this host belongs to {cluster}"
    if not Path(schedule.folder).is_dir():
        return f"its folder {schedule.folder} does not exist on this host"
    return ""


def _submit_job(
    context: contexts.Context,
    schedule: schedules.Schedule,
    trigger: schedules.Trigger,
    payload: schedules.Payload,
) -> str:
    from orchestrator.controller.submission import render, submit

    def mark(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        _mark_fired(work, context, trigger, job_row=added[0].row)

    spec = specs.from_json(json.dumps(payload.spec))
    request = render.Request(spec=spec, source=schedule.source, argv=payload.argv)
    job = submit.submit(context, request, queue=True, in_transaction=mark)
    if job.is_deferred:
        return f"{_title(trigger)} deferred (submit limit reached): @{job.row}, {job.name}"
    job_id = job.array_job_id or job.job_id
    return f"{_title(trigger)} submitted batch job {job_id} (@{job.row}, {job.name})"


def _submit_sweep(
    context: contexts.Context,
    schedule: schedules.Schedule,
    trigger: schedules.Trigger,
    payload: schedules.Payload,
) -> str:
    from orchestrator.controller.sweeps import plan, submit_points

    def mark(work: unit_of_work.UnitOfWork, stored: sweeps.StoredSweep) -> None:
        _mark_fired(work, context, trigger, sweep_row=stored.row)

    sweep = sweeps.expand(documents.of(payload.spec, schedule.source), context.profile)
    # Runs may overlap, and unfinished sweeps need different names.
    form = "%Y%m%dT%H%M%SZ" if trigger.by_hand else "%Y%m%dT%H%MZ"
    sweep = dataclasses.replace(sweep, name=f"{sweep.name}-{trigger.planned_at:{form}}")
    prepared = plan.prepare(
        context,
        sweep.table,
        sweep.points,
        source=schedule.source,
        argv=payload.argv,
        scheduler=schedule.scheduler,
    )
    result = submit_points.submit_new(prepared, sweep, schedule.source, with_sweep=mark)
    return _sweep_message(trigger, result.sweep, result.submitted, result.deferred)


def _mark_fired(
    work: unit_of_work.UnitOfWork,
    context: contexts.Context,
    trigger: schedules.Trigger,
    **rows: int,
) -> None:
    changes = {"state": "fired", "reason": None, "decided_at": context.clock.now(), **rows}
    if not work.schedules.change_trigger(trigger, **changes):
        raise errors.ConflictError("another process has fired it at the same time")


def _continue_sweep(context: contexts.Context, trigger: schedules.Trigger) -> list[str]:
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
    age_seconds = (context.clock.now() - trigger.decided_at).total_seconds()
    if (
        sweep.state != "open"
        or all(group.state is not None for group in groups)
        or (trigger.by_hand and age_seconds < _BY_HAND_SECONDS)
    ):
        return []
    context.guard.check()
    try:
        if obstacle := _obstacle(context, schedule):
            return _keep(context, schedule, trigger, obstacle)
        with context.store.reading() as work:
            payload = work.schedules.payload(schedule.row)
        there = restore(context, schedule, payload)
        result = submit_points.submit_remaining(there, sweep, payload.argv)
        if result is None:
            return []
        message = _sweep_message(trigger, sweep, result.submitted, result.deferred)
    except (errors.DatabaseError, errors.FencedError):
        raise
    except (submit_points.BaselineError, *_PERMANENT) as exc:
        started = [group for group in groups if group.state is not None]
        if isinstance(exc, submit_points.BaselineError) and not all(map(queries.ended, started)):
            return []
        message = _close_sweep(context, sweep, trigger, str(exc))
    except (*_TEMPORARY, errors.ConfigurationError) as exc:
        return _keep(context, schedule, trigger, str(exc))
    return [f"Schedule {schedule.name}: {message}"]


def _close_sweep(
    context: contexts.Context, sweep: sweeps.StoredSweep, trigger: schedules.Trigger, reason: str
) -> str:
    """Cancel a sweep whose remaining points can never be submitted."""
    remaining, _ = queries.close(context, sweep)
    with context.store.writing() as work:
        work.schedules.change_trigger(trigger, reason=reason)
    return (
        f"{_title(trigger)} {remaining} points of {sweep.name} (@{sweep.row}) will not be "
        f"submitted: {reason}"
    )


def _sweep_message(
    trigger: schedules.Trigger, sweep: sweeps.StoredSweep, count: int, deferred: int
) -> str:
    points = f"{count} point" + ("s" if count != 1 else "")
    more = f", {deferred} deferred (submit limit reached)" if deferred else ""
    return f"{_title(trigger)} submitted {points} of sweep {sweep.name} (@{sweep.row}){more}"


def _title(trigger: schedules.Trigger) -> str:
    return "by hand:" if trigger.by_hand else f"{trigger.planned_at:%Y-%m-%dT%H:%MZ}"


def _is_waiting(context: contexts.Context, trigger: schedules.Trigger) -> bool:
    with context.store.reading() as work:
        return work.schedules.trigger(trigger.row).state == "waiting"


def _keep(
    context: contexts.Context,
    schedule: schedules.Schedule,
    trigger: schedules.Trigger,
    reason: str | None,
) -> list[str]:
    """Store why a trigger waits; report a new reason."""
    if reason == trigger.reason:
        return []
    with context.store.writing() as work:
        work.schedules.change_trigger(trigger, reason=reason)
    return [f"Schedule {schedule.name}: {_title(trigger)} {reason}"] if reason else []


def _end(
    context: contexts.Context,
    schedule: schedules.Schedule,
    trigger: schedules.Trigger,
    state: str,
    reason: str,
) -> list[str]:
    now = context.clock.now()
    with context.store.writing() as work:
        if not work.schedules.change_trigger(trigger, state=state, reason=reason, decided_at=now):
            return []
    return [f"Schedule {schedule.name}: {_title(trigger)} {state} ({reason})"]
