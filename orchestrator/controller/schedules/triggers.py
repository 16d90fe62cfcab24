"""firing: planned times are decided once, and what is due is submitted once.

A firing waits until it is fired in the very transaction that stores the job's intent, or the sweep:
whatever is killed between two steps, it is done once. A sweep whose points were not all sent is
gone on with by the next pass, point by point.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import config, errors, jobs, schedules, specs, sweeps
from orchestrator.clocks import leaps
from orchestrator.controller.schedules import paths, regression_check, submitted
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.sweeps import queries
from orchestrator.toml import documents

#: Rounds of schedules.MOST planned times in one pass: after years without a controller the rest
#: follows with the next passes.
ROUNDS = 10
#: A sweep that was fired by hand is sent by that command: it is not taken over before.
BY_HAND_SECONDS = 300
#: A person may be writing a file of the configuration; after so long it is taken for wrong.
WRITING_SECONDS = 600


def step(context: contexts.Context) -> list[str]:
    """Decide what was planned up to now, submit what is due, judge what has ended; return what."""
    with context.store.reading() as work:
        found = work.schedules.all()
        unjudged = work.schedules.triggers_without_verdict()
    told: list[str] = []
    for firing in unjudged:
        if firing.sweep_row is not None:
            told += go_on(context, firing)
    for stored in found:
        context.guard.check()
        told += decide(context, stored)
    with context.store.reading() as work:
        waiting = work.schedules.waiting_triggers()
    kept: set[int] = set()
    for firing in waiting:
        # What keeps one of a schedule, Slurm that is away or an earlier one, keeps the others.
        if firing.schedule_row not in kept:
            context.guard.check()
            told += attempt(context, firing)
            is_due = not firing.by_hand and firing.due_at <= context.clock.now()
            if is_due and _is_waiting(context, firing):
                kept.add(firing.schedule_row)
    return [*told, *regression_check.judge(context)]


def next_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    """Return when something is planned or due next after a moment; none: nothing that is known."""
    with context.store.reading() as work:
        found = [one for one in work.schedules.all() if one.state == "active"]
        times = [one.due_at for one in work.schedules.waiting_triggers() if one.due_at > after]
    for stored in found:
        # A zone that this host does not know is told by each pass.
        with contextlib.suppress(schedules.ScheduleError):
            following = next(stored.rule.calendar.after(max(after, stored.decided_until)), None)
            times += [following] if following else []
    return min(times, default=None)


def decide(context: contexts.Context, stored: schedules.Schedule) -> list[str]:
    """Store what becomes of each time that was planned up to now."""
    skipped: list[schedules.Planned] = []
    for _ in range(ROUNDS):
        now = context.clock.now()
        stored = _not_ahead(context, stored, now)
        try:
            decided = schedules.decide(stored.rule, stored.decided_until, now)
        except schedules.ScheduleError as exc:
            # Another host, which knows the zone, decides.
            return [f"Schedule {stored.name}: {exc}"]
        if not decided.planned:
            break
        with context.store.writing() as work:
            if not work.schedules.add_triggers(stored, decided, now):
                # It was changed, or decided, by another: the next pass sees what is left.
                break
            stored = work.schedules.get(stored.row)
        skipped += [one for one in decided.planned if one.state == "skipped"]
        if not decided.more:
            break
        context.guard.check()
    if not skipped or stored.state == "paused":
        return []
    count = f"{len(skipped)} planned time" + ("s" if len(skipped) > 1 else "")
    if any(one.first_at is not None for one in skipped):
        count = f"all planned times until {skipped[-1].planned_at:%Y-%m-%dT%H:%MZ}"
    return [f"Schedule {stored.name}: skipped {count} ({skipped[-1].reason})"]


def _not_ahead(
    context: contexts.Context, stored: schedules.Schedule, now: datetime.datetime
) -> schedules.Schedule:
    """Let a schedule go on from now that was decided up to a time that is still to come.

    It was added by a clock that was early. What has an entry in its history keeps it.
    """
    if stored.decided_until - now <= leaps.TOLERANCE:
        return stored
    with context.store.writing() as work:
        newest = work.schedules.last_planned_at(stored.row)
        until = now if newest is None else max(now, newest)
        if until < stored.decided_until:
            work.schedules.change(stored, decided_until=until)
        return work.schedules.get(stored.row)


def attempt(context: contexts.Context, firing: schedules.Trigger) -> list[str]:
    """Submit what a waiting firing is of, if it is its turn; skip it if that is over."""
    now = context.clock.now()
    with context.store.reading() as work:
        stored = work.schedules.get(firing.schedule_row)
        others = [
            one
            for one in work.schedules.waiting_triggers()
            if one.schedule_row == stored.row and one.row != firing.row
        ]
        is_live = any(
            not submitted.has_ended(work, one)
            for one in work.schedules.triggers_without_verdict(stored.row)
        )
    if stored.state == "removed":
        return _end(context, stored, firing, "skipped", "removed")
    try:
        step, reason = schedules.next_step(stored.rule, firing, now, others=others, is_live=is_live)
    except schedules.ScheduleError as exc:
        return _keep(context, stored, firing, str(exc))
    if step is schedules.Step.SKIP:
        return _end(context, stored, firing, "skipped", reason or "")
    if step is schedules.Step.KEEP:
        return _keep(context, stored, firing, reason)
    return fire(context, stored, firing)


def fire(
    context: contexts.Context, stored: schedules.Schedule, firing: schedules.Trigger
) -> list[str]:
    """Submit what a waiting firing is of; where that is not possible now it goes on waiting."""
    try:
        if told := _not_here(context, stored):
            return _keep(context, stored, firing, told)
        with context.store.reading() as work:
            payload = work.schedules.payload(stored.row)
        there = place(context, stored, payload)
        told = _fire(there, stored, firing, payload)
    except (errors.DatabaseError, errors.FencedError):
        raise
    except (errors.SlurmError, errors.ConflictError, errors.RunFolderError) as exc:
        told = str(exc)
        if _is_waiting(context, firing):
            return _keep(context, stored, firing, told)
    except (errors.SpecError, errors.ConfigurationError, errors.TemplateError) as exc:
        told = str(exc)
        if _is_waiting(context, firing):
            if isinstance(exc, errors.ConfigurationError) and _is_new(context, firing):
                return _keep(context, stored, firing, told)
            return _end(context, stored, firing, "failed", told)
    return [f"Schedule {stored.name}: {told}"]


def _is_new(context: contexts.Context, firing: schedules.Trigger) -> bool:
    """Return whether a configuration that is wrong may be right in a moment.

    Who fires by hand is told at once.
    """
    since = max(firing.due_at, firing.decided_at)
    seconds = (context.clock.now() - since).total_seconds()
    return not firing.by_hand and seconds < WRITING_SECONDS


def place(
    context: contexts.Context, stored: schedules.Schedule, payload: schedules.Payload
) -> contexts.Context:
    """Return the context of what a schedule submits: folder, variables and profile as it was added.

    Its state is here. ConfigurationError where its files have become wrong.
    """
    return paths.there(
        context,
        folder=Path(stored.folder),
        environment=payload.environment,
        profile=stored.profile,
        scheduler=stored.scheduler,
    )


def _not_here(context: contexts.Context, stored: schedules.Schedule) -> str:
    """Return why this process cannot submit what the schedule is of; "" where it can."""
    here = clusters.facts(context.with_scheduler(stored.scheduler)).cluster
    if here != stored.cluster:
        return f"it is of {stored.cluster}, and this host is of {here}"
    if not Path(stored.folder).is_dir():
        return f"its folder {stored.folder} is not there"
    return ""


def _fire(
    there: contexts.Context,
    stored: schedules.Schedule,
    firing: schedules.Trigger,
    payload: schedules.Payload,
) -> str:
    if stored.kind == "sweep":
        return _fire_sweep(there, stored, firing, payload)
    from orchestrator.controller.submission import render, submit

    spec = specs.from_json(json.dumps(payload.spec))
    request = render.Request(spec=spec, source=stored.source, argv=payload.argv)

    def bind(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        _fired(work, there, firing, job_row=added[0].row)

    job = submit.submit(there, request, queue=True, in_transaction=bind)
    if job.is_deferred:
        return f"{_planned(firing)} waits for room (@{job.row}, {job.name})"
    job_id = job.array_job_id or job.job_id
    return f"{_planned(firing)} submitted batch job {job_id} (@{job.row}, {job.name})"


def _fire_sweep(
    there: contexts.Context,
    stored: schedules.Schedule,
    firing: schedules.Trigger,
    payload: schedules.Payload,
) -> str:
    from orchestrator.controller.sweeps import plan, submit_points

    sweep = expanded(stored, payload, there.profile)
    # Firings may overlap, and of one name only one sweep may be at it.
    sweep = dataclasses.replace(sweep, name=sweep_name(sweep.name, firing))
    prepared = plan.prepare_sweep(
        there, sweep, source=stored.source, argv=payload.argv, scheduler=stored.scheduler
    )

    def bind(work: unit_of_work.UnitOfWork, made: sweeps.StoredSweep) -> None:
        _fired(work, there, firing, sweep_row=made.row)

    made = submit_points.create(there, prepared, sweep, stored.source, with_sweep=bind)
    sent = submit_points.submit_stored(prepared, made, sweep.points)
    return _sent(firing, sent.sweep, sent.submitted, sent.deferred)


def expanded(
    stored: schedules.Schedule, payload: schedules.Payload, profile: config.Profile
) -> sweeps.Sweep:
    """Return the sweep of a schedule, filled from the profile as it is now."""
    whole = documents.Origin(source=stored.source)
    document = documents.Document(data=payload.spec, origins={(): whole})
    return sweeps.expand(document, profile)


def sweep_name(name: str, firing: schedules.Trigger) -> str:
    """Return the name of the sweep of a firing: its own, and when it was planned, in UTC."""
    form = "%Y%m%dT%H%M%SZ" if firing.by_hand else "%Y%m%dT%H%MZ"
    return f"{name}-{firing.planned_at:{form}}"


def _fired(
    work: unit_of_work.UnitOfWork,
    context: contexts.Context,
    firing: schedules.Trigger,
    **of: int,
) -> None:
    changes = {"state": "fired", "reason": None, "decided_at": context.clock.now(), **of}
    if not work.schedules.change_trigger(firing, **changes):
        raise errors.ConflictError("another process fired it at this moment")


def go_on(context: contexts.Context, firing: schedules.Trigger) -> list[str]:
    """Submit the points of a fired sweep that nothing was submitted of.

    What Slurm never got of the others is sent by refreshes, as all that waits for room.
    """
    assert firing.sweep_row is not None
    with context.store.reading() as work:
        sweep = work.sweeps.get(firing.sweep_row)
        assert sweep is not None, "sweeps are never deleted"
        groups = work.sweeps.groups([sweep.row]).get(sweep.row, [])
        stored = work.schedules.get(firing.schedule_row)
    age_seconds = (context.clock.now() - firing.decided_at).total_seconds()
    if (
        sweep.state != "open"
        or all(group.state is not None for group in groups)
        or (firing.by_hand and age_seconds < BY_HAND_SECONDS)
    ):
        return []
    context.guard.check()
    from orchestrator.controller.sweeps import submit_points

    try:
        if told := _not_here(context, stored):
            return _keep(context, stored, firing, told)
        with context.store.reading() as work:
            payload = work.schedules.payload(stored.row)
        there = place(context, stored, payload)
        sent = submit_points.submit_remaining(there, sweep, payload.argv)
        if sent is None:
            return []
        told = _sent(firing, sweep, sent.submitted, sent.deferred)
    except (errors.DatabaseError, errors.FencedError):
        raise
    except submit_points.BaselineError as exc:
        gone = [group for group in groups if group.state is not None]
        if not all(queries.ended(group) for group in gone):
            return []
        told = _close(context, sweep, firing, str(exc))
    except (errors.SpecError, errors.TemplateError) as exc:
        told = _close(context, sweep, firing, str(exc))
    except (
        errors.SlurmError,
        errors.ConflictError,
        errors.RunFolderError,
        errors.ConfigurationError,
    ) as exc:
        return _keep(context, stored, firing, str(exc))
    return [f"Schedule {stored.name}: {told}"]


def _close(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    firing: schedules.Trigger,
    why: str,
) -> str:
    """Let nothing more of a sweep be submitted: its rest never can be."""
    left, _ = queries.close(context, sweep)
    with context.store.writing() as work:
        work.schedules.change_trigger(firing, reason=why)
    return f"{_planned(firing)} {left} points of {sweep.name} (@{sweep.row}) are given up: {why}"


def _sent(
    firing: schedules.Trigger, sweep: sweeps.StoredSweep, submitted: int, waiting: int
) -> str:
    count = f"{submitted} point" + ("s" if submitted != 1 else "")
    more = f", {waiting} wait for room" if waiting else ""
    return f"{_planned(firing)} submitted {count} of sweep {sweep.name} (@{sweep.row}){more}"


def _planned(firing: schedules.Trigger) -> str:
    if firing.by_hand:
        return "by hand:"
    return f"{firing.planned_at:%Y-%m-%dT%H:%MZ}"


def _is_waiting(context: contexts.Context, firing: schedules.Trigger) -> bool:
    with context.store.reading() as work:
        return work.schedules.trigger(firing.row).state == "waiting"


def _keep(
    context: contexts.Context,
    stored: schedules.Schedule,
    firing: schedules.Trigger,
    reason: str | None,
) -> list[str]:
    """Store why a firing goes on waiting; what is known already is not told again."""
    if reason == firing.reason:
        return []
    with context.store.writing() as work:
        work.schedules.change_trigger(firing, reason=reason)
    return [f"Schedule {stored.name}: {_planned(firing)} {reason}"] if reason else []


def _end(
    context: contexts.Context,
    stored: schedules.Schedule,
    firing: schedules.Trigger,
    state: str,
    reason: str,
) -> list[str]:
    with context.store.writing() as work:
        changes: Mapping[str, object] = {
            "state": state,
            "reason": reason,
            "decided_at": context.clock.now(),
        }
        if not work.schedules.change_trigger(firing, **changes):
            return []
    return [f"Schedule {stored.name}: {_planned(firing)} {state} ({reason})"]
