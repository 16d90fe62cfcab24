"""Reads from the database what was submitted before a job starts, and waits until it can.

The database is read in a child process, so that the memory of its driver is freed.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import pickle
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from orchestrator import errors
from orchestrator.local import processes, verification
from orchestrator.local.records import Entry
from orchestrator.local.spool import Spool

#: A full disk, or one that is read-only after an error, may be repaired while the job waits.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_DISK_RETRY_SECONDS = 5.0
#: The pause between two attempts to read the database doubles up to this.
_MAX_PAUSE_SECONDS = 60.0
#: A writer of SQLite may block for 30 s, an upgrade of a large database longer.
_LOOK_UP_SECONDS = 600.0
_MAX_REASON_CHARACTERS = 1000
#: The runner receives these by sigtimedwait; they interrupt nothing.
SIGNALS = (signal.SIGCHLD, signal.SIGTERM)
T = TypeVar("T")


class GoneError(Exception):
    """The job is not in the queue any more, or has another runner."""


class StoppedError(Exception):
    """The job has to end before its script started; the message is the user's request."""


class _UnavailableError(Exception):
    """The database cannot be read now; the message is the reason."""


def until_stored(store: Callable[[], T]) -> T:
    """Store the start or end of a job; retries while the disk is full or read-only."""
    while True:
        try:
            return store()
        except errors.OrchestratorError as exc:
            cause = exc.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _DISK_ERRORS:
                raise
        time.sleep(_DISK_RETRY_SECONDS)


def read(spool: Spool, entry: Entry, look_up: verification.LookUp) -> verification.Submitted:
    """Return what was submitted; retries while the database is unavailable.

    Raises DifferentError if the database has no such job, StoppedError, GoneError.
    """
    pause = 1.0
    while True:
        try:
            submitted = _read_in_child(spool, entry, look_up)
        except _UnavailableError as exc:
            _store_note(spool, entry, f"waits for the database: {exc}")
        else:
            _store_note(spool, entry, "")
            return submitted
        _wait(spool, entry, time.monotonic() + pause, lambda: False)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def _read_in_child(
    spool: Spool, entry: Entry, look_up: verification.LookUp
) -> verification.Submitted:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # A pipe takes 64 KiB at once (man 7 pipe), and this is far less.
            os.write(writer, pickle.dumps(_look_up(entry, look_up)))
        finally:
            os._exit(0)
    os.close(writer)
    ended: set[int] = set()

    def has_ended() -> bool:
        ended.update(processes.reap())
        return child in ended

    with open(reader, "rb") as pipe:
        try:
            _wait(spool, entry, time.monotonic() + _LOOK_UP_SECONDS, has_ended)
        finally:
            if child not in ended:
                processes.send(child, signal.SIGKILL)
                os.waitpid(child, 0)
        data = pipe.read()
    if not data:
        raise _UnavailableError(f"its reader was killed, or took {_LOOK_UP_SECONDS:.0f} s")
    answer: verification.Submitted | Exception = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _look_up(
    entry: Entry, look_up: verification.LookUp
) -> verification.Submitted | verification.DifferentError | _UnavailableError:
    try:
        return look_up(entry)
    except errors.NotFoundError as exc:
        return verification.DifferentError(str(exc))
    except errors.DatabaseError as exc:
        return _UnavailableError(str(exc)[:_MAX_REASON_CHARACTERS])
    except BaseException as exc:
        return _UnavailableError(repr(exc)[:_MAX_REASON_CHARACTERS])


def _wait(spool: Spool, entry: Entry, deadline: float, is_done: Callable[[], bool]) -> None:
    """Wait; raises StoppedError if the job has to end meanwhile, GoneError if it is gone."""
    while not is_done() and (left := deadline - time.monotonic()) > 0:
        received = signal.sigtimedwait(SIGNALS, left)
        current = _current(spool, entry)
        if received is not None and received.si_signo == signal.SIGTERM:
            raise StoppedError(current.wish or "terminated")


def _current(spool: Spool, entry: Entry) -> Entry:
    current = spool.live_entry(entry.key)
    if current is None or current.runner != entry.runner:
        raise GoneError
    return current


def _store_note(spool: Spool, entry: Entry, note: str) -> None:
    """Store why the script has not started, for `status`."""

    def store() -> None:
        # First without the lock, which would create the folders again if they were removed.
        if _current(spool, entry).note != note:
            with spool.locked():
                spool.put(dataclasses.replace(_current(spool, entry), note=note))

    until_stored(store)
