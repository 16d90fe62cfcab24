"""The lease of the controller: taking it, standing by for it, and keeping it while one acts.

What makes two controllers safe is not the lease's time but its number: it is checked in every write
transaction and renewed right before each sbatch. The time only decides when another may take over.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from orchestrator import errors
from orchestrator.controller.service import lease_messages
from orchestrator.controller.session import contexts, stores
from orchestrator.jobs import leases as records
from orchestrator.local import kernel_clock, processes

#: Who stands by looks so often in the time that a lease holds, and a holder renews so often.
_LOOKS, _RENEWALS = 6, 3
#: A holder whose work shows nothing for so long hangs: its lease is not renewed any more. The
#: longest command takes 180 s (sbatch), and none is followed by another without a sign.
HANGS_AFTER_SECONDS = 600.0


class HeldError(errors.ConflictError):
    """Another controller acts."""


class HeldLease:
    """The lease, while this process has it. `renew` may be called by a thread of its own."""

    def __init__(
        self,
        context: contexts.Context,
        fence: int,
        *,
        seconds: float,
        taken_at: float,
        boot_clock: Callable[[], float] = kernel_clock.boot_seconds,
    ) -> None:
        #: writes only as long as the lease is ours
        self.store: stores.Store = context.store.fenced(fence)
        self._context = context
        self._fence = fence
        self._seconds = seconds
        self._boot_clock = boot_clock
        self._good_at = taken_at
        self._busy_since: float | None = taken_at
        self._lost: errors.FencedError | None = None

    def renew(self) -> None:
        """Store that this process lives; raises FencedError where another one acts."""
        # Before the question: how long it is on its way counts against us.
        asked_at = self._boot_clock()
        try:
            with self._context.store.writing() as work:
                now = self._context.clock.now()
                if not work.leases.renew(self._fence, now):
                    raise lease_messages.taken_over(work.leases.read(now))
        except errors.FencedError as exc:
            self._lost = exc
            raise
        self._good_at = asked_at

    def proceed(self) -> None:
        """Show that the work goes on; raises FencedError, or DatabaseError where a lease that ran
        out cannot be renewed.
        """
        self._busy_since = self._boot_clock()
        if self._lost is not None:
            raise errors.FencedError(str(self._lost))
        if self._age_seconds() >= self._seconds * 2 / 3:
            self.renew()

    def confirm(self) -> None:
        """Renew the lease, so that what is started now starts within it."""
        self._busy_since = self._boot_clock()
        while True:
            self.renew()
            # Where this process was stopped since it asked, the answer is an old one.
            if self._age_seconds() < self._seconds / 2:
                return

    def rest(self) -> None:
        """Say that nothing is done until the next `proceed`."""
        self._busy_since = None

    def give_back(self) -> None:
        """Let the lease go, so that another need not wait for it to run out."""
        if self._lost is None:
            with contextlib.suppress(errors.DatabaseError), self._context.store.writing() as work:
                work.leases.give_back(self._fence)

    @contextlib.contextmanager
    def kept(self, told: Callable[[str], None], lost: Callable[[], None]) -> Iterator[None]:
        """Renew the lease meanwhile in a thread, and give it back at the end.

        A thread, for a step may wait for one command longer than the lease holds. It stops where
        the work hangs, so that another may take over; where that was wrong, the number stops us.
        `told` gets a sentence where a renewal fails, `lost` is called when another one acts.
        """
        ended = threading.Event()
        thread = threading.Thread(
            target=self._renew_until, args=(ended, told, lost), name="lease", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.give_back()

    def _renew_until(
        self, ended: threading.Event, told: Callable[[str], None], lost: Callable[[], None]
    ) -> None:
        failing = False
        while not ended.wait(self._seconds / _RENEWALS / (3 if failing else 1)):
            busy_since = self._busy_since
            if busy_since is not None and self._boot_clock() - busy_since > HANGS_AFTER_SECONDS:
                told(
                    f"Nothing was done for {HANGS_AFTER_SECONDS:g} s: the lease is not renewed, "
                    "so that another controller may act."
                )
                return
            try:
                self.renew()
                failing = False
            except errors.FencedError:
                lost()
                return
            except errors.OrchestratorError as exc:
                if not failing:
                    told(f"The lease was not renewed: {exc}")
                failing = True

    def _age_seconds(self) -> float:
        return self._boot_clock() - self._good_at


def acquire(
    context: contexts.Context,
    *,
    command: str,
    seconds: float,
    stand_by: bool = False,
    pause: Callable[[float], None] = time.sleep,
    told: Callable[[str], None] = lambda sentence: None,
    monotonic: Callable[[], float] = time.monotonic,
    boot_clock: Callable[[], float] = kernel_clock.boot_seconds,
) -> HeldLease:
    """Take the lease; raises HeldError where another controller acts.

    A holder whose process has ended on this host is replaced at once; any other when it was not
    renewed in time. Clocks of hosts differ: where no server tells the time, that is watched for as
    long as the lease holds, and not read off a clock. `stand_by`: wait until it is free; a file on
    two hosts is not stood by for. `told` is told once for whom it waits; `pause` may raise.
    """
    me = processes.this_process()
    watched: tuple[int, int] | None = None
    since = monotonic()
    changed = waits = False
    while True:
        lease, one_clock = _look(context)
        if watched != (lease.fence, lease.renewals):
            changed = watched is not None
            watched, since = (lease.fence, lease.renewals), monotonic()
        unrenewed = lease.lapsed if one_clock else monotonic() - since >= lease.seconds
        if lease.holder is None or has_ended(lease) or unrenewed:
            taken_at = boot_clock()
            with context.store.writing() as work:
                fence = work.leases.take(
                    lease, me, command=command, seconds=seconds, here=context.clock.now()
                )
            if fence is not None:
                return HeldLease(
                    context, fence, seconds=seconds, taken_at=taken_at, boot_clock=boot_clock
                )
            continue
        elsewhere = not one_clock and lease.holder.host != me.host
        may_wait = stand_by and not elsewhere
        # Whose last renewal only seems old, because its clock differs, is seen to renew.
        if not may_wait and (changed or one_clock or not lease.lapsed):
            raise HeldError(_refusal(lease, command, elsewhere=elsewhere))
        if not waits:
            told(f"{lease_messages.described(lease)} acts; waiting for it to end.")
        waits = True
        pause(lease.seconds / _LOOKS)


def _look(context: contexts.Context) -> tuple[records.Lease, bool]:
    here = context.clock.now()
    with context.store.reading() as work:
        lease, one_clock = work.leases.read(here), work.leases.one_clock
    if lease is None:
        # Another process may be faster; what else went wrong is told by the next look.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.leases.add()
        with context.store.reading() as work:
            lease = work.leases.read(here)
        if lease is None:
            raise errors.DatabaseError("The lease cannot be stored; `orchestrator db check` helps.")
    return lease, one_clock


def has_ended(lease: records.Lease) -> bool:
    """Return whether the holder's process is known to be gone.

    Of another boot nothing is known: two machines may have the same name.
    """
    holder = lease.holder
    if holder is None or holder.boot_id != processes.boot_id():
        return False
    return processes.is_alive(holder) is False


def _refusal(lease: records.Lease, command: str, *, elsewhere: bool) -> str:
    told = f"{lease_messages.described(lease)} acts already"
    if elsewhere:
        return (
            f"{told}, and this is {socket.gethostname()}. Use the one there; a second host "
            "can stand by where the database is kept in PostgreSQL."
        )
    if command == "tick":
        return f"{told} and does what a tick does; nothing was done."
    return f"{told}. End it first, or add --wait to stand by for it."
