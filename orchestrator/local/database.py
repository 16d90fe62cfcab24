"""What the runner asks the database before it starts a job, however long that is away.

It asks in a child, so that nothing which the database's driver loads stays in memory.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, TypeVar

from orchestrator import errors
from orchestrator.local import binding, machine, processes, spool

#: A full disk, or one that is read-only after an error, may be mended while we wait.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NO_ROOM_SECONDS = 5.0
#: A database that does not answer is asked again, after a pause that doubles up to this one.
_MAX_PAUSE_SECONDS = 60.0
#: A writer of SQLite's is waited for for 30 s, an upgrade of a large database longer.
_LOOK_UP_SECONDS = 600.0
_MAX_REASON_CHARACTERS = 1000
Stored = TypeVar("Stored")
#: They reach the runner as answers of sigtimedwait and interrupt nothing.
HEARD = (signal.SIGCHLD, signal.SIGTERM)


def until_stored(store: Callable[[], Stored]) -> Stored:
    """Store the begin or the end of a job, however long the disk is full."""
    while True:
        try:
            return store()
        except errors.OrchestratorError as exc:
            cause = exc.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _NO_ROOM:
                raise
        time.sleep(_NO_ROOM_SECONDS)


class GoneError(Exception):
    """The job is not in the line any more, or another runner has it."""


class _AwayError(Exception):
    """The database cannot be read now; the message says why."""


class StoppedError(Exception):
    """The job is to end before its script began; the message is the wish of its user."""


def submitted(
    here: machine.Machine, entry: spool.Entry, look_up: binding.LookUp
) -> binding.Submitted:
    """Return what was submitted, however long the database is away."""
    pause = 1.0
    while True:
        try:
            found = _ask(here, entry, look_up)
        except _AwayError as exc:
            _note(here, entry, f"waits for the database: {exc}")
        else:
            _note(here, entry, "")
            return found
        _heed(here, entry, time.monotonic() + pause, lambda: False)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def _ask(here: machine.Machine, entry: spool.Entry, look_up: binding.LookUp) -> binding.Submitted:
    """Look the job up in a child, which takes along what it loaded when it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # A pipe takes 64 KiB at once (man 7 pipe), and this is far less.
            os.write(writing, json.dumps(_answer(entry, look_up)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    ended: set[int] = set()

    def has_ended() -> bool:
        ended.update(processes.reap())
        return child in ended

    with open(reading, "rb") as pipe:
        try:
            _heed(here, entry, time.monotonic() + _LOOK_UP_SECONDS, has_ended)
        finally:
            if child not in ended:
                processes.send(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if child not in ended:
            raise _AwayError(f"no answer for {_LOOK_UP_SECONDS:.0f} s")
        text = pipe.read()
    answer: dict[str, Any] = json.loads(text or '{"away": "the process that asked it was killed"}')
    if "away" in answer:
        raise _AwayError(answer["away"])
    if "unknown" in answer:
        raise binding.DifferentError(answer["unknown"])
    return binding.Submitted(**answer["submitted"])


def _answer(entry: spool.Entry, look_up: binding.LookUp) -> dict[str, Any]:
    """Return what the database says, as JSON takes it."""
    try:
        return {"submitted": dataclasses.asdict(look_up(entry))}
    except errors.NotFoundError as exc:
        return {"unknown": str(exc)}
    except errors.DatabaseError as exc:
        return {"away": str(exc)[:_MAX_REASON_CHARACTERS]}
    except BaseException as exc:
        return {"away": repr(exc)[:_MAX_REASON_CHARACTERS]}


def _heed(
    here: machine.Machine, entry: spool.Entry, deadline: float, is_over: Callable[[], bool]
) -> None:
    """Wait; StoppedError where the job is to end meanwhile, GoneError where it is gone."""
    while not is_over() and (left := deadline - time.monotonic()) > 0:
        heard = signal.sigtimedwait(HEARD, left)
        now = here.files.waiting(entry.key)
        if now is None or now.runner != entry.runner:
            raise GoneError
        if heard is not None and heard.si_signo == signal.SIGTERM:
            raise StoppedError(now.wish or "terminated")


def _note(here: machine.Machine, entry: spool.Entry, note: str) -> None:
    """Store why the script does not begin yet, for `status`."""

    def store() -> None:
        # First without the lock, which would make the folders anew where they were removed.
        now = here.files.waiting(entry.key)
        if now is None or now.runner != entry.runner:
            raise GoneError
        if now.note != note:
            with here.files.locked():
                now = here.files.waiting(entry.key)
                if now is not None and now.runner == entry.runner:
                    here.files.put(dataclasses.replace(now, note=note))

    until_stored(store)
