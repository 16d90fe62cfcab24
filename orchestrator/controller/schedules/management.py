"""scheduling: what people do with schedules; controller/firing.py is what the controller does."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from orchestrator import errors, files, schedules
from orchestrator.controller.schedules import paths, submitted, triggers
from orchestrator.controller.session import clock_check, clusters, contexts

#: A spec or a batch file; both are refused beyond 4 MiB.
_SOURCE_LIMIT_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """A schedule as it is asked for."""

    name: str
    calendar: schedules.Calendar
    kind: Literal["job", "sweep"]
    #: the file that it is read from, as it was named
    source: str
    #: of a sweep the file's keys with those of the command line, else the job's spec
    spec: Any
    #: names of the variables that its specs name
    inherit: Sequence[str]
    argv: Sequence[str]
    catchup: schedules.Catchup
    grace_seconds: int
    overlap: schedules.Overlap
    jitter_seconds: int
    baseline: str | None


def add(context: contexts.Context, wanted: Wanted, *, replace: bool = False) -> schedules.Schedule:
    """Store a schedule, with the variables and the profile in force here.

    Its first planned time is the first after now. `replace`: in place of the one of its name, whose
    firings stay; what is compared begins anew. ConflictError where one is there, NotFoundError
    where none is there to be replaced.
    """
    clock_check.require(context)
    now = context.clock.now()
    payload = schedules.Payload(
        spec=wanted.spec,
        environment=paths.variables(context, wanted.inherit),
        argv=tuple(wanted.argv),
    )
    fields: dict[str, object] = {
        "state": "active",
        "cron": wanted.calendar.cron,
        "tz": wanted.calendar.tz,
        "kind": wanted.kind,
        "source": wanted.source,
        "source_hash": file_hash(context.folder, wanted.source),
        "folder": str(context.folder),
        "profile": context.profile.name,
        "cluster": clusters.facts(context).cluster,
        "scheduler": "local" if context.is_local else "slurm",
        "catchup": wanted.catchup,
        "grace_seconds": wanted.grace_seconds,
        "overlap": wanted.overlap,
        "jitter_seconds": wanted.jitter_seconds,
        "baseline": wanted.baseline,
        "created_at": now,
    }
    with context.store.writing(durable=True) as work:
        there = next(iter(work.schedules.all(name=wanted.name)), None)
        if there is None and replace:
            raise unknown(wanted.name)
        if there is None:
            return work.schedules.add(payload, name=wanted.name, decided_until=now, **fields)
        if not replace:
            raise errors.ConflictError(
                f"a schedule {wanted.name} is there: --replace takes it anew, and "
                f"`orchestrator schedule remove {wanted.name}` ends it"
            )
        # What was decided stays so, whatever clock was in force then.
        fields["decided_until"] = max(now, there.decided_until)
        work.schedules.change(there, payload, **fields)
        return work.schedules.get(there.row)


def file_hash(folder: Path, source: str) -> str | None:
    """Return what tells a file from what it was before; none where there is no file."""
    try:
        content = files.read_bytes(folder / source, limit_bytes=_SOURCE_LIMIT_BYTES)
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return None


def changed(stored: schedules.Schedule) -> str:
    """Return what has become of the file since it was read; "" where it is as it was."""
    if stored.source_hash is None:
        return ""
    now = file_hash(Path(stored.folder), stored.source)
    if now == stored.source_hash:
        return ""
    what = "cannot be read any more" if now is None else "has changed since it was added"
    return (
        f"{stored.source} {what}; what was read then is submitted: "
        f"`orchestrator schedule add {stored.name} ... --replace` takes it anew"
    )


def find(context: contexts.Context, name: str) -> schedules.Schedule:
    """Return the schedule of this name; NotFoundError."""
    with context.store.reading() as work:
        found = work.schedules.all(name=name)
    if not found:
        raise unknown(name)
    return found[0]


def unknown(name: str) -> errors.NotFoundError:
    """Return the error for a name that no schedule has."""
    return errors.NotFoundError(
        f"no schedule {name!r} here; `orchestrator schedule list` lists what is known"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """A schedule, what is next, and what was last."""

    stored: schedules.Schedule
    #: none: it is paused, removed, or nothing comes any more
    next_at: datetime.datetime | None
    #: newest first
    firings: tuple[schedules.Trigger, ...]


def summaries(
    context: contexts.Context, found: Sequence[schedules.Schedule], *, firings: int = 1
) -> list[Summary]:
    """Return these schedules, each with so many of its newest firings."""
    now = context.clock.now()
    made = []
    for stored in found:
        with context.store.reading() as work:
            newest = work.schedules.triggers(stored.row, limit=firings)
        made.append(Summary(stored=stored, next_at=_next_at(stored, now), firings=tuple(newest)))
    return made


def _next_at(stored: schedules.Schedule, now: datetime.datetime) -> datetime.datetime | None:
    if stored.state != "active":
        return None
    after = max(now, stored.decided_until)
    return next(stored.rule.calendar.after(after), None)


def overlooked(
    context: contexts.Context, found: Sequence[schedules.Schedule], *, late_seconds: float
) -> list[str]:
    """Return the schedules whose planned time came that long ago and that nobody looked at."""
    told = []
    until = context.clock.now() - datetime.timedelta(seconds=late_seconds)
    for stored in found:
        if stored.state != "active":
            continue
        try:
            planned = next(stored.rule.calendar.after(stored.decided_until), None)
        except schedules.ScheduleError:
            # This host does not know its zone.
            continue
        if planned is not None and planned <= until:
            at = f"{planned.astimezone():%Y-%m-%d %H:%M}"
            told.append(f"{stored.name} was planned for {at}, and nobody has looked since.")
    return told


def pause(context: contexts.Context, name: str) -> schedules.Schedule:
    """Let a schedule plan nothing; what it planned and has not submitted is skipped."""
    return _change(context, name, "paused")


def resume(context: contexts.Context, name: str) -> schedules.Schedule:
    """Let a schedule go on; what was planned while it was paused stays skipped."""
    stored = find(context, name)
    if stored.state == "paused":
        clock_check.require(context)
        while stored.decided_until < context.clock.now():
            before = stored
            triggers.decide(context, stored)
            stored = find(context, name)
            if stored.version == before.version:
                break
    return _change(context, name, "active")


def remove(context: contexts.Context, name: str) -> schedules.Schedule:
    """End a schedule; its jobs go on, and its history is kept."""
    return _change(context, name, "removed")


def _change(
    context: contexts.Context, name: str, state: schedules.ScheduleState
) -> schedules.Schedule:
    with context.store.writing(durable=True) as work:
        found = work.schedules.all(name=name)
        if not found:
            raise unknown(name)
        if found[0].state != state:
            work.schedules.change(found[0], state=state)
    return dataclasses.replace(found[0], state=state)


def run_now(context: contexts.Context, name: str) -> tuple[schedules.Trigger, list[str]]:
    """Fire a schedule once, now; also one that is paused. Return the firing and what was done.

    ConflictError where an earlier one has not ended and the schedule's overlap is "skip".
    """
    now = context.clock.now()
    stored = find(context, name)
    with context.store.writing(durable=True) as work:
        live = any(
            not submitted.has_ended(work, one)
            for one in work.schedules.triggers_without_verdict(stored.row)
        )
        if live and stored.overlap == "skip":
            raise errors.ConflictError(
                f"what {name} submitted before has not ended, and its overlap is skip: "
                f"`orchestrator schedule show {name}` shows it"
            )
        made = work.schedules.add_trigger_by_hand(stored, now)
    told = triggers.attempt(context, made)
    with context.store.reading() as work:
        return work.schedules.trigger(made.row), told


def history(
    context: contexts.Context, name: str, limit: int | None
) -> tuple[schedules.Schedule, list[schedules.Trigger]]:
    """Return the newest schedule of this name, removed ones too, and its firings, newest first."""
    with context.store.reading() as work:
        found = work.schedules.all(name=name, states=("active", "paused", "removed"))
        if not found:
            raise unknown(name)
        return found[-1], work.schedules.triggers(found[-1].row, limit=limit)
