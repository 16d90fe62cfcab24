"""Adds, changes and shows schedules for the user. triggers.py is the controller's part."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from db import unit_of_work
from orchestrator import errors, files
from orchestrator.controller.schedules import submit_later, triggers
from orchestrator.controller.session import clock_check, clusters, contexts
from orchestrator.schedules import calendars, records

#: A spec or a batch file is refused if it is larger.
_SOURCE_LIMIT_BYTES = 4 * 1024 * 1024


def add(
    context: contexts.Context,
    name: str,
    *,
    spec: Any,
    inherit: Sequence[str],
    argv: Sequence[str],
    replace: bool = False,
    **fields: Any,
) -> records.Schedule:
    """Store a schedule with the current environment and profile. It begins now.

    Raises ConflictError if it exists, or with `replace` NotFoundError if it does not.

    Args:
        spec: of a sweep, the keys of the file and of the command line; otherwise the job's spec.
        inherit: environment variables that its specs name.
        replace: replace the schedule with this name. Its history stays, but results are no longer
            compared with earlier ones.
        fields: the other fields of records.Schedule that the user chooses.
    """
    clock_check.require(context)
    environment = submit_later.variables(context, inherit)
    payload = records.Payload(spec=spec, environment=environment, argv=tuple(argv))
    fields |= {
        "state": "active",
        "source_hash": _file_hash(context.folder, fields["source"]),
        **clusters.current_fields(context),
    }
    now = fields["created_at"]
    with context.store.writing(durable=True) as work:
        if replace:
            existing = _named(work, name)
            # Decided times stay decided, even if the clock was ahead.
            until = max(now, existing.decided_until)
            work.schedules.change(existing, payload, decided_until=until, **fields)
            return work.schedules.get(existing.row)
        if work.schedules.all(name=name):
            raise errors.ConflictError(
                f"schedule {name} already exists: use --replace, or "
                f"`orchestrator schedule remove {name}` first"
            )
        return work.schedules.add(payload, name=name, decided_until=now, **fields)


def _named(
    work: unit_of_work.UnitOfWork,
    name: str,
    states: Collection[records.ScheduleState] = ("active", "paused"),
) -> records.Schedule:
    """Return the newest schedule with this name; raises NotFoundError."""
    schedules = work.schedules.all(name=name, states=states)
    if not schedules:
        raise errors.NotFoundError(
            f"schedule {name!r} not found: `orchestrator schedule list` lists all schedules"
        )
    return schedules[-1]


def _file_hash(folder: Path, source: str) -> str | None:
    try:
        content = files.read_bytes(folder / source, limit_bytes=_SOURCE_LIMIT_BYTES)
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return None


def source_change(schedule: records.Schedule) -> str:
    """Return how the file has changed since the schedule was added; "": it has not."""
    current = _file_hash(Path(schedule.folder), schedule.source)
    if schedule.source_hash in (None, current):
        return ""
    what = "is no longer readable" if current is None else "has changed since it was added"
    return (
        f"{schedule.source} {what}. The schedule still submits the old content. To update it: "
        f"`orchestrator schedule add {schedule.name} ... --replace`"
    )


def find(context: contexts.Context, name: str) -> records.Schedule:
    """Return the schedule with this name; raises NotFoundError."""
    with context.store.reading() as work:
        return _named(work, name)


class Summary(NamedTuple):
    stored: records.Schedule
    #: None: paused, removed, or no further planned time
    next_at: datetime.datetime | None
    #: newest first
    triggers: list[records.Trigger]


def summaries(
    context: contexts.Context, schedules: Sequence[records.Schedule], *, limit: int = 1
) -> list[Summary]:
    now = context.clock.now()
    with context.store.reading() as work:
        return [
            Summary(each, each.next_at(now), work.schedules.triggers(each.row, limit=limit))
            for each in schedules
        ]


def overdue(
    context: contexts.Context, schedules: Sequence[records.Schedule], *, late_seconds: float
) -> list[str]:
    """Return a sentence for each schedule whose planned time passed long ago without a decision."""
    sentences = []
    until = context.clock.now() - datetime.timedelta(seconds=late_seconds)
    for schedule in schedules:
        try:
            planned = schedule.next_at(schedule.decided_until)
        except calendars.ScheduleError:
            # This host does not know the time zone.
            continue
        if planned is not None and planned <= until:
            at = f"{planned.astimezone():%Y-%m-%d %H:%M}"
            sentences.append(
                f"{schedule.name} was planned for {at}, but no controller pass has run since."
            )
    return sentences


def change_state(
    context: contexts.Context, name: str, state: records.ScheduleState
) -> records.Schedule:
    """Pause, resume or remove a schedule.

    Planned times that have not been submitted by then, or during a pause, are skipped. Its jobs
    continue, and its history stays.
    """
    schedule = find(context, name)
    if state == "active" and schedule.is_paused:
        clock_check.require(context)
        while schedule.decided_until < context.clock.now():
            version = schedule.version
            triggers.decide(context, schedule)
            schedule = find(context, name)
            if schedule.version == version:
                break
    with context.store.writing(durable=True) as work:
        schedule = _named(work, name)
        if schedule.state != state:
            work.schedules.change(schedule, state=state)
        return work.schedules.get(schedule.row)


def run_now(context: contexts.Context, name: str) -> tuple[records.Trigger, list[str]]:
    """Fire a schedule now, even if it is paused; return the trigger and messages.

    Raises ConflictError if an earlier run has not ended and the schedule's overlap is "skip".
    """
    with context.store.writing(durable=True) as work:
        schedule = _named(work, name)
        if schedule.overlap == "skip" and submit_later.any_live(work, schedule):
            raise errors.ConflictError(
                f"an earlier run of {name} has not ended, and its overlap is skip: "
                f"`orchestrator schedule show {name}` shows it"
            )
        trigger = work.schedules.add_trigger_by_hand(schedule, context.clock.now())
    messages = triggers.attempt(context, trigger)
    with context.store.reading() as work:
        return work.schedules.trigger(trigger.row), messages


def history(
    context: contexts.Context, name: str, limit: int | None
) -> tuple[records.Schedule, list[records.Trigger]]:
    """Return the newest schedule with this name, even a removed one, and its newest triggers."""
    with context.store.reading() as work:
        schedule = _named(work, name, ("active", "paused", "removed"))
        return schedule, work.schedules.triggers(schedule.row, limit=limit)
