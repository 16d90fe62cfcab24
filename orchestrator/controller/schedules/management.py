"""Adds, changes and shows schedules for the user. triggers.py is the controller's part."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from orchestrator import errors, files, schedules
from orchestrator.controller.schedules import stored_context, submitted, triggers
from orchestrator.controller.session import clock_check, clusters, contexts

#: A spec or a batch file is refused if it is larger.
_SOURCE_LIMIT_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewSchedule:
    """A schedule to add."""

    name: str
    calendar: schedules.Calendar
    kind: Literal["job", "sweep"]
    #: path of the file that it was read from, as the user wrote it
    source: str
    #: of a sweep, the keys of the file and of the command line; otherwise the job's spec
    spec: Any
    #: environment variables that its specs name
    inherit: Sequence[str]
    argv: Sequence[str]
    catchup: schedules.Catchup
    grace_seconds: int
    overlap: schedules.Overlap
    jitter_seconds: int
    baseline: str | None


def add(
    context: contexts.Context, new: NewSchedule, *, replace: bool = False
) -> schedules.Schedule:
    """Store a schedule with the current environment and profile. It begins now.

    replace: replace the schedule with this name. Its history stays, but results are no longer
    compared with earlier ones. Raises ConflictError if it exists, or with `replace` NotFoundError
    if it does not.
    """
    clock_check.require(context)
    now = context.clock.now()
    payload = schedules.Payload(
        spec=new.spec,
        environment=stored_context.variables(context, new.inherit),
        argv=tuple(new.argv),
    )
    copied = ("kind", "source", "catchup", "grace_seconds", "overlap", "jitter_seconds", "baseline")
    fields: dict[str, object] = {
        **{name: getattr(new, name) for name in copied},
        "state": "active",
        "cron": new.calendar.cron,
        "tz": new.calendar.tz,
        "source_hash": _file_hash(context.folder, new.source),
        "folder": str(context.folder),
        "profile": context.profile.name,
        "cluster": clusters.facts(context).cluster,
        "scheduler": "local" if context.is_local else "slurm",
        "created_at": now,
    }
    with context.store.writing(durable=True) as work:
        existing = next(iter(work.schedules.all(name=new.name)), None)
        if existing is None and replace:
            raise _not_found(new.name)
        if existing is None:
            return work.schedules.add(payload, name=new.name, decided_until=now, **fields)
        if not replace:
            raise errors.ConflictError(
                f"schedule {new.name} already exists: use --replace, or "
                f"`orchestrator schedule remove {new.name}` first"
            )
        # Decided times stay decided, even if the clock was ahead.
        fields["decided_until"] = max(now, existing.decided_until)
        work.schedules.change(existing, payload, **fields)
        return work.schedules.get(existing.row)


def _file_hash(folder: Path, source: str) -> str | None:
    try:
        content = files.read_bytes(folder / source, limit_bytes=_SOURCE_LIMIT_BYTES)
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return None


def source_change(schedule: schedules.Schedule) -> str:
    """Return how the file has changed since the schedule was added; "": it has not."""
    if schedule.source_hash is None:
        return ""
    current = _file_hash(Path(schedule.folder), schedule.source)
    if current == schedule.source_hash:
        return ""
    what = "is no longer readable" if current is None else "has changed since it was added"
    return (
        f"{schedule.source} {what}. The schedule still submits the old content. To update it: "
        f"`orchestrator schedule add {schedule.name} ... --replace`"
    )


def find(context: contexts.Context, name: str) -> schedules.Schedule:
    """Return the schedule with this name; raises NotFoundError."""
    with context.store.reading() as work:
        found = work.schedules.all(name=name)
    if not found:
        raise _not_found(name)
    return found[0]


def _not_found(name: str) -> errors.NotFoundError:
    return errors.NotFoundError(
        f"schedule {name!r} not found: `orchestrator schedule list` lists all schedules"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A schedule with its next planned time and its history."""

    stored: schedules.Schedule
    #: None: paused, removed, or no further planned time
    next_at: datetime.datetime | None
    #: newest first
    triggers: tuple[schedules.Trigger, ...]


def summaries(
    context: contexts.Context, found: Sequence[schedules.Schedule], *, limit: int = 1
) -> list[Summary]:
    """Return the schedules, each with its newest triggers."""
    now = context.clock.now()
    with context.store.reading() as work:
        return [
            Summary(
                stored=schedule,
                next_at=_next_at(schedule, now) if schedule.state == "active" else None,
                triggers=tuple(work.schedules.triggers(schedule.row, limit=limit)),
            )
            for schedule in found
        ]


def _next_at(schedule: schedules.Schedule, now: datetime.datetime) -> datetime.datetime | None:
    return next(schedule.calendar.after(max(now, schedule.decided_until)), None)


def overdue(
    context: contexts.Context, found: Sequence[schedules.Schedule], *, late_seconds: float
) -> list[str]:
    """Return a sentence for each schedule whose planned time passed long ago without a decision."""
    sentences = []
    until = context.clock.now() - datetime.timedelta(seconds=late_seconds)
    for schedule in found:
        if schedule.state != "active":
            continue
        try:
            planned = next(schedule.calendar.after(schedule.decided_until), None)
        except schedules.ScheduleError:
            # This host does not know the time zone.
            continue
        if planned is not None and planned <= until:
            at = f"{planned.astimezone():%Y-%m-%d %H:%M}"
            sentences.append(
                f"{schedule.name} was planned for {at}, but no controller pass has run since."
            )
    return sentences


def pause(context: contexts.Context, name: str) -> schedules.Schedule:
    """Stop planning. Planned times that have not been submitted are skipped."""
    return _change_state(context, name, "paused")


def resume(context: contexts.Context, name: str) -> schedules.Schedule:
    """Plan again. Planned times during the pause stay skipped."""
    schedule = find(context, name)
    if schedule.state == "paused":
        clock_check.require(context)
        while schedule.decided_until < context.clock.now():
            version = schedule.version
            triggers.decide(context, schedule)
            schedule = find(context, name)
            if schedule.version == version:
                break
    return _change_state(context, name, "active")


def remove(context: contexts.Context, name: str) -> schedules.Schedule:
    """End a schedule. Its jobs continue, and its history stays."""
    return _change_state(context, name, "removed")


def _change_state(
    context: contexts.Context, name: str, state: schedules.ScheduleState
) -> schedules.Schedule:
    with context.store.writing(durable=True) as work:
        found = work.schedules.all(name=name)
        if not found:
            raise _not_found(name)
        if found[0].state != state:
            work.schedules.change(found[0], state=state)
    return dataclasses.replace(found[0], state=state)


def run_now(context: contexts.Context, name: str) -> tuple[schedules.Trigger, list[str]]:
    """Fire a schedule now, even if it is paused; return the trigger and messages.

    Raises ConflictError if an earlier run has not ended and the schedule's overlap is "skip".
    """
    schedule = find(context, name)
    with context.store.writing(durable=True) as work:
        if schedule.overlap == "skip" and submitted.any_live(work, schedule):
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
) -> tuple[schedules.Schedule, list[schedules.Trigger]]:
    """Return the newest schedule with this name, even a removed one, and its newest triggers."""
    with context.store.reading() as work:
        found = work.schedules.all(name=name, states=("active", "paused", "removed"))
        if not found:
            raise _not_found(name)
        return found[-1], work.schedules.triggers(found[-1].row, limit=limit)
