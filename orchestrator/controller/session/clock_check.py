"""The clock of this host is checked before something is decided by it.

What it last showed is in the database: each pass and command compares with the one before, on
whatever host. Where the clock leapt, other clocks are asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import socket
from typing import Any

from db import unit_of_work
from orchestrator import errors
from orchestrator.clocks import leaps
from orchestrator.controller.session import contexts
from orchestrator.local import kernel_clock, processes

_KEY = "clock"
#: Commands of people use the controller's answer about a clock in doubt for so long.
_ANSWER_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """A context whose clock was checked."""

    context: contexts.Context
    #: the clock leapt since the check before
    is_new: bool
    #: the leap that the check before found is over, or confirmed
    is_over: bool


def checked(context: contexts.Context) -> contexts.Context:
    """Return the context for a command of a person, with `clock.doubt` filled in."""
    if context.clock.doubt is not None:
        return context
    return _check(context, keep=False).context


def check_pass(context: contexts.Context) -> Check:
    """Check the clock for a pass of the controller, and store what it showed.

    The pass goes on with this reading and the seconds since: a leap while it runs changes nothing.
    """
    found = _check(context, keep=True)
    at, boot_at = found.context.clock.now(), context.clock.boot_seconds()

    def now() -> datetime.datetime:
        return at + datetime.timedelta(seconds=context.clock.boot_seconds() - boot_at)

    return dataclasses.replace(found, context=_with_clock(found.context, now=now))


def require(context: contexts.Context) -> None:
    """Store what the clock shows; ConflictError where it is in doubt."""
    if doubt := _check(context, keep=True).context.clock.doubt:
        raise errors.ConflictError(doubt)


def trust(context: contexts.Context) -> datetime.datetime:
    """Store that a person has looked at the clock and found it right."""
    now = _read(context)
    with context.store.writing() as work:
        work.settings.put(_KEY, leaps.State(trusted=now).to_json())
    return now.at


def stored_doubt(work: unit_of_work.UnitOfWork) -> str:
    """Return what the last check found wrong with the clock; "": nothing."""
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
        after = leaps.assess(before, now, lambda: _witnesses(context))
        # Who only looks has nothing to add to a clock that goes on as it did.
        if keep or (before is not None and (doubt or after.doubt)):
            with context.store.writing() as work:
                # Another process may have been faster.
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
        and now.seconds_since(doubt.asked) < _ANSWER_SECONDS
        and abs(leaps.leap(doubt.asked, now)) <= leaps.TOLERANCE
    )


def _witnesses(context: contexts.Context) -> list[leaps.OtherClock]:
    """Return the clocks of other hosts, and the kernel's word where there are none.

    The stamp of a new file is no witness: on Lustre, and on NFS with delegated time stamps, it is
    this host's own.
    """
    found = []
    with context.store.reading() as work:
        asked_at = context.clock.now()
        server_time = work.leases.server_time()
    if server_time is not None:
        ahead = server_time - asked_at
        found.append(leaps.OtherClock(name="the database server's clock", ahead=ahead))
    with contextlib.suppress(errors.SlurmError):
        asked_at = context.clock.now()
        answer = context.slurm.config()
        here = socket.gethostname().partition(".")[0]
        if answer.answered_at is not None and here not in answer.controller_hosts:
            ahead = answer.answered_at - asked_at
            found.append(leaps.OtherClock(name="Slurm's clock", ahead=ahead))
    if not found and kernel_clock.is_synchronized():
        found.append(leaps.OtherClock(name="NTP", ahead=datetime.timedelta()))
    return found
