"""The health of the controller: a small file that each pass writes, and its evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from pathlib import Path
from typing import Any

from orchestrator import config, errors, files, jobs
from orchestrator.controller.service import leases
from orchestrator.controller.session import clock_check, stores
from orchestrator.jobs.leases import Lease
from orchestrator.text import times

#: The file has some 600 bytes; the error of a step may be long.
_MAX_BYTES = 1024 * 1024
#: A pass may last this long, or a machine be busy, before the next pass is late.
LATE_SECONDS = 120.0
#: For ticks, which cron or systemd starts at unknown times.
TICKS_LATE_SECONDS = 900.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """The last pass, as its controller stored it. Times are aware, in UTC."""

    #: serve or tick
    command: str
    host: str
    pid: int
    #: start of the controller
    since: datetime.datetime
    #: start and duration of its last pass
    last_pass_at: datetime.datetime
    took_seconds: float
    #: by name: "" or the error
    steps: dict[str, str]
    #: None for a tick, or after the end
    next_pass_at: datetime.datetime | None
    #: since when each pass had a step that failed; None if the last pass succeeded
    failing_since: datetime.datetime | None
    #: when the controller was stopped
    ended_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    lease: Lease | None
    newest: Pass | None
    #: sentences; empty: it is healthy
    problems: tuple[str, ...]


def path_of(state_dir: Path) -> Path:
    return state_dir / "controller.json"


def store(configuration: config.Configuration, newest: Pass) -> None:
    """Replace the file atomically.

    Raises OSError, and PrivateFolderError if other users can change the folder.
    """
    folder, shared = configuration.state_dir, configuration.shared_folders
    # With a database server, nothing else creates the folder.
    files.make_private_folder(folder, shared_folders=shared, setting="state_dir")
    fields = dataclasses.asdict(newest)
    text = json.dumps(fields, default=datetime.datetime.isoformat, indent=2)
    files.replace(path_of(folder), f"{text}\n".encode())


def load(state_dir: Path) -> Pass | None:
    """Return the content of the file; None without one, or if another version wrote it."""
    try:
        text = files.read_text(path_of(state_dir), limit_bytes=_MAX_BYTES)
        fields: dict[str, Any] = json.loads(text)
        for name in ("since", "last_pass_at", "next_pass_at", "failing_since", "ended_at"):
            if fields[name] is not None:
                fields[name] = datetime.datetime.fromisoformat(fields[name])
        return Pass(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def late_message(newest: Pass | None, now: datetime.datetime) -> str:
    """Return when a controller that was not stopped made its last pass; "" if it is not late."""
    if newest is None or newest.ended_at is not None:
        return ""
    due, late_seconds = newest.next_pass_at, LATE_SECONDS
    if due is None:
        due, late_seconds = newest.last_pass_at, TICKS_LATE_SECONDS
    return last_pass_message(newest) if (now - due).total_seconds() > late_seconds else ""


def last_pass_message(newest: Pass) -> str:
    return (
        f"The controller's last pass was at {times.local(newest.last_pass_at)} "
        f"(`{newest.command}`, process {newest.pid} on {newest.host})."
    )


def examine(store: stores.Store, state_dir: Path, now: datetime.datetime) -> Health:
    newest = load(state_dir)
    lease = None
    try:
        with store.reading() as work:
            lease = work.leases.read(now)
            problems = [clock_check.stored_doubt(work)]
    except errors.DatabaseError as exc:
        problems = [str(exc)]
    holder = None if lease is None else lease.holder
    if lease is None and newest is None:
        problems.append("The controller has never run here: `orchestrator serve` starts it.")
    elif newest is not None and newest.ended_at is not None and holder is None:
        problems.append(f"The controller was stopped at {times.local(newest.ended_at)}.")
    if lease is not None and holder is not None:
        if leases.has_ended(lease):
            problems.append(f"{lease.holder_description} was killed.")
        elif lease.lapsed:
            age = f"{lease.age_seconds:.0f} s"
            problems.append(f"{lease.holder_description} has not renewed its lease for {age}.")
    # The file of an earlier controller says nothing about the one that has the lease.
    is_current = newest is not None and (
        holder is None or (holder.host, holder.pid) == (newest.host, newest.pid)
    )
    if is_current:
        problems.append(late_message(newest, now))
    if newest is not None and newest.failing_since is not None and newest.ended_at is None:
        failures = "; ".join(f"{step}: {error}" for step, error in newest.steps.items() if error)
        problems.append(f"Failing since {times.local(newest.failing_since)}: {failures}")
    return Health(lease=lease, newest=newest, problems=tuple(filter(None, problems)))


def end(configuration: config.Configuration, at: datetime.datetime, who: jobs.Submitter) -> bool:
    """Store that this controller was stopped; False: another one wrote the file since."""
    newest = load(configuration.state_dir)
    if newest is None or (newest.host, newest.pid) != (who.host, who.pid):
        return False
    with contextlib.suppress(OSError):
        store(configuration, dataclasses.replace(newest, next_pass_at=None, ended_at=at))
    return True
