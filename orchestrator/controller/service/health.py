"""The health of the controller: a small file after each pass, and what follows from it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import errors, files, jobs
from orchestrator.controller.session import stores
from orchestrator.local import processes

if TYPE_CHECKING:
    from orchestrator.jobs import leases

NAME = "controller.json"
#: It is some 600 bytes; an error of a step may be long.
_LIMIT_BYTES = 1024 * 1024
#: A pass may take so long, or a machine be so busy, before the next one counts as late.
LATE_SECONDS = 120.0
#: Ticks come from a driver, of which nothing is known: they count as late after so long.
TICKS_LATE_SECONDS = 900.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """The newest pass, as its controller stored it. Times are aware, in UTC."""

    #: serve or tick
    command: str
    host: str
    pid: int
    #: since when it acts
    since: datetime.datetime
    #: when its newest pass began, and how long it took
    last_pass_at: datetime.datetime
    took_seconds: float
    #: by name: "" or why it failed
    steps: dict[str, str]
    #: when the next one begins; none: that is the driver's affair, or it has ended
    next_pass_at: datetime.datetime | None
    #: since when each pass had a step that failed; none: the newest went well
    failing_since: datetime.datetime | None
    #: it was ended, and nothing more is to be expected of it
    ended_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Health:
    """What is known of the controller."""

    lease: leases.Lease | None
    newest: Pass | None
    #: plain sentences; none: it is healthy
    problems: tuple[str, ...]


def path_of(state_dir: Path) -> Path:
    return state_dir / NAME


def store(state_dir: Path, newest: Pass, *, shared_folders: Sequence[Path] = ()) -> None:
    """Write the file, whole or not at all; raises OSError.

    Raises PrivateFolderError where other users can change the folder.
    """
    path = path_of(state_dir)
    new = path.with_name(f".{NAME}.{secrets.token_hex(4)}")
    text = json.dumps(dataclasses.asdict(newest), default=_as_text, indent=2)
    # Where the database is on a server, nothing else has made the folder.
    files.make_private_folder(state_dir, shared_folders=shared_folders, setting="state_dir")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def load(state_dir: Path) -> Pass | None:
    """Return what the file says; None where there is none, or another version wrote it."""
    try:
        fields: dict[str, Any] = json.loads(
            files.read_text(path_of(state_dir), limit_bytes=_LIMIT_BYTES)
        )
        for name in ("since", "last_pass_at", "next_pass_at", "failing_since", "ended_at"):
            if fields[name] is not None:
                fields[name] = datetime.datetime.fromisoformat(fields[name])
        return Pass(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def late_message(newest: Pass | None, now: datetime.datetime) -> str:
    """Return since when a controller that was not ended is silent, in a sentence; "": it is not."""
    if newest is None or newest.ended_at is not None:
        return ""
    silent_seconds = (now - newest.last_pass_at).total_seconds()
    if newest.next_pass_at is not None:
        is_late = (now - newest.next_pass_at).total_seconds() > LATE_SECONDS
    else:
        is_late = silent_seconds > TICKS_LATE_SECONDS
    if not is_late:
        return ""
    return last_pass_message(newest)


def last_pass_message(newest: Pass) -> str:
    """Return when the newest pass was, and whose, in a sentence."""
    at = newest.last_pass_at.astimezone()
    return (
        f"The controller's last pass was at {at:%Y-%m-%d %H:%M:%S} "
        f"(`{newest.command}`, process {newest.pid} on {newest.host})."
    )


def examine(store: stores.Store, state_dir: Path, now: datetime.datetime) -> Health:
    """Return how the controller is, from the lease and the file."""
    # `status` reads the file alone, and is not to load this.
    from orchestrator.controller.service import lease_messages
    from orchestrator.controller.session import clock_check

    newest = load(state_dir)
    lease = None
    problems = []
    try:
        with store.reading() as work:
            lease = work.leases.read(now)
            doubt = clock_check.stored_doubt(work)
        problems += [doubt] if doubt else []
    except errors.DatabaseError as exc:
        problems.append(str(exc))
    if lease is None and newest is None:
        problems.append("There never was a controller here: `orchestrator serve` starts one.")
    elif newest is not None and newest.ended_at is not None and not _held(lease):
        at = newest.ended_at.astimezone()
        problems.append(f"The controller was ended at {at:%Y-%m-%d %H:%M:%S}.")
    if _held(lease):
        assert lease is not None and lease.holder is not None
        same_boot = lease.holder.boot_id == processes.boot_id()
        if same_boot and processes.is_alive(lease.holder) is False:
            problems.append(f"{lease_messages.described(lease)} was killed.")
        elif lease.lapsed:
            problems.append(
                f"{lease_messages.described(lease)} has not renewed its lease for "
                f"{lease.age_seconds:.0f} s."
            )
    # Of an earlier controller it means nothing while another one acts.
    if not _of_another(lease, newest) and (told := late_message(newest, now)):
        problems.append(told)
    if newest is not None and newest.failing_since is not None and newest.ended_at is None:
        since = newest.failing_since.astimezone()
        whys = "; ".join(f"{step}: {why}" for step, why in newest.steps.items() if why)
        problems.append(f"Failing since {since:%Y-%m-%d %H:%M:%S}: {whys}")
    return Health(lease=lease, newest=newest, problems=tuple(problems))


def end(
    state_dir: Path,
    at: datetime.datetime,
    who: jobs.Submitter,
    *,
    shared_folders: Sequence[Path] = (),
) -> None:
    """Store that a controller was ended, so that nobody waits for its next pass.

    What another one wrote meanwhile, which took over, stays.
    """
    newest = load(state_dir)
    if newest is not None and (newest.host, newest.pid) == (who.host, who.pid):
        with contextlib.suppress(OSError):
            ended = dataclasses.replace(newest, next_pass_at=None, ended_at=at)
            store(state_dir, ended, shared_folders=shared_folders)


def _held(lease: leases.Lease | None) -> bool:
    return lease is not None and lease.holder is not None


def _of_another(lease: leases.Lease | None, newest: Pass | None) -> bool:
    holder = None if lease is None else lease.holder
    if holder is None or newest is None:
        return False
    return (holder.host, holder.pid) != (newest.host, newest.pid)


def _as_text(value: object) -> str:
    assert isinstance(value, datetime.datetime)
    return value.isoformat()
