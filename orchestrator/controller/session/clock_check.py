"""Check the clock of this host before anything is decided by it.

Each pass and command compares the clock with the stored reading of the one before, from any host.
If the clock has jumped, other clocks are read.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import socket
from typing import Any

from db import unit_of_work
from orchestrator import errors
from orchestrator.clocks import leaps
from orchestrator.controller.session import contexts
from orchestrator.local import processes

_KEY = "clock"
#: how long commands use the stored result for a clock in doubt
_RESULT_SECONDS = 60.0
#: adjtimex(2): the clock is not synchronized
_TIME_ERROR = 5
#: larger than struct timex on all platforms (208 bytes on 64 bits)
_TIMEX_BYTES = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    #: with `clock.doubt`
    context: contexts.Context
    #: the clock has jumped since the last check
    is_new: bool
    #: the last check found a jump, which is over or confirmed
    is_over: bool


def checked(context: contexts.Context) -> contexts.Context:
    """Return the context of a command with `clock.doubt`."""
    if context.clock.doubt is not None:
        return context
    return _check(context, keep=False).context


def check_pass(context: contexts.Context) -> Check:
    """Check the clock for a controller pass, and store the reading.

    The time during the pass is this reading plus the seconds since: a jump changes nothing.
    """
    check = _check(context, keep=True)
    at, boot_at = check.context.clock.now(), context.clock.boot_seconds()

    def now() -> datetime.datetime:
        return at + datetime.timedelta(seconds=context.clock.boot_seconds() - boot_at)

    return dataclasses.replace(check, context=_with_clock(check.context, now=now))


def require(context: contexts.Context) -> None:
    """Store the reading; raises ConflictError if the clock is in doubt."""
    if doubt := _check(context, keep=True).context.clock.doubt:
        raise errors.ConflictError(doubt)


def trust(context: contexts.Context) -> datetime.datetime:
    """Store that a person has confirmed the clock."""
    now = _read(context)
    with context.store.writing() as work:
        work.settings.put(_KEY, leaps.State(trusted=now).to_json())
    return now.at


def stored_doubt(work: unit_of_work.UnitOfWork) -> str:
    """Return why the clock is in doubt since the last check; "": it is not."""
    state = leaps.State.of_json(work.settings.get(_KEY) or "")
    return "" if state is None else leaps.explanation(state)


def _read(context: contexts.Context) -> leaps.Reading:
    return leaps.Reading(
        at=context.clock.now(),
        boot_seconds=context.clock.boot_seconds(),
        boot_id=processes.boot_id(),
        host=socket.gethostname(),
    )


def _check(context: contexts.Context, *, keep: bool) -> Check:
    with context.store.reading() as work:
        text = work.settings.get(_KEY) or ""
    now = _read(context)
    before = leaps.State.of_json(text)
    doubt = None if before is None else before.doubt
    if not keep and before is not None and doubt is not None and _is_fresh(doubt, now):
        after = before
    else:
        after = leaps.assess(before, now, lambda: _other_clocks(context))
        # A command stores a reading only if the clock was or is in doubt.
        if keep or (before is not None and (doubt or after.doubt)):
            with context.store.writing() as work:
                # Unless another process has stored one meanwhile.
                if (work.settings.get(_KEY) or "") == text:
                    work.settings.put(_KEY, after.to_json())
    return Check(
        context=_with_clock(context, doubt=leaps.explanation(after)),
        is_new=after.doubt is not None and (doubt is None or doubt.since != after.doubt.since),
        is_over=doubt is not None and after.doubt is None,
    )


def _with_clock(context: contexts.Context, **changes: Any) -> contexts.Context:
    return dataclasses.replace(context, clock=dataclasses.replace(context.clock, **changes))


def _is_fresh(doubt: leaps.Doubt, now: leaps.Reading) -> bool:
    return (
        now.is_of_same_boot(doubt.asked)
        and now.seconds_since(doubt.asked) < _RESULT_SECONDS
        and abs(leaps.leap(doubt.asked, now)) <= leaps.TOLERANCE
    )


def _other_clocks(context: contexts.Context) -> dict[str, datetime.timedelta]:
    """Return the clocks of other hosts, or else NTP's if the kernel is synchronized.

    The time stamp of a new file is no other clock: on Lustre, and on NFS with delegated time
    stamps, it comes from this host.
    """
    clocks = {}
    with context.store.reading() as work:
        asked_at = context.clock.now()
        server_time = work.leases.server_time()
    if server_time is not None:
        clocks["the database server's clock"] = server_time - asked_at
    with contextlib.suppress(errors.SlurmError):
        asked_at = context.clock.now()
        settings = context.slurm.config()
        here = socket.gethostname().partition(".")[0]
        if settings.answered_at is not None and here not in settings.controller_hosts:
            clocks["Slurm's clock"] = settings.answered_at - asked_at
    if not clocks and is_synchronized():
        clocks["NTP"] = datetime.timedelta()
    return clocks


def is_synchronized() -> bool:
    """Return whether the kernel was told, since the clock was last set, that NTP keeps it.

    Setting the clock clears that mark; the NTP client sets it again once it agrees with its server.
    """
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    # With no mode in it, the call only asks. -1: there is no such call here.
    return ctypes.CDLL(None).adjtimex(buffer) not in (_TIME_ERROR, -1)
