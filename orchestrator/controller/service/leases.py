"""The controller's lease: acquiring it, standing by for it, and renewing it.

Two controllers are safe because of the lease's number, not its time: the number is checked in every
write transaction and renewed right before each sbatch. The time only decides when another
controller may take over.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from orchestrator import errors
from orchestrator.controller.session import contexts, stores
from orchestrator.jobs import leases
from orchestrator.local import processes

#: Standing by, the lease is read this often in its duration; its holder renews it this often.
_READS, _RENEWALS = 6, 3
#: A holder that shows no progress for this long hangs: its lease is not renewed. The longest
#: command takes 180 s (sbatch), and progress is shown between two commands.
HANGS_AFTER_SECONDS = 600.0


class HeldError(errors.ConflictError):
    """Another controller is running."""


class HeldLease:
    """The lease of this process. `renew` may be called by another thread."""

    def __init__(
        self,
        context: contexts.Context,
        fence: int,
        *,
        seconds: float,
        boot_clock: Callable[[], float],
        taken_at: float,
    ) -> None:
        #: writes only while the lease is ours
        self.store: stores.Store = context.store.fenced(fence)
        self._context = context
        self._fence = fence
        self._seconds = seconds
        self._boot_clock = boot_clock
        self._renewed_at = taken_at
        self._busy_since: float | None = taken_at
        self._lost: errors.FencedError | None = None

    def renew(self) -> None:
        """Renew the lease. Raises FencedError if another controller has it."""
        # Before the statement: its duration counts against us.
        started_at = self._boot_clock()
        try:
            with self._context.store.writing() as work:
                now = self._context.clock.now()
                if not work.leases.renew(self._fence, now):
                    raise leases.taken_over(work.leases.read(now))
        except errors.FencedError as exc:
            self._lost = exc
            raise
        self._renewed_at = started_at

    def check(self) -> None:
        """Show progress, and renew a lease that soon expires.

        Raises FencedError, and DatabaseError if it cannot be renewed.
        """
        self._busy_since = self._boot_clock()
        if self._lost is not None:
            raise errors.FencedError(str(self._lost))
        if self._age_seconds() >= self._seconds * 2 / 3:
            self.renew()

    def confirm(self) -> None:
        """Show progress, and renew the lease so that what is started now starts within it."""
        self._busy_since = self._boot_clock()
        self.renew()
        # If this process was suspended during the renewal, its result is old.
        while self._age_seconds() >= self._seconds / 2:
            self.renew()

    def _age_seconds(self) -> float:
        return self._boot_clock() - self._renewed_at

    def rest(self) -> None:
        """Expect no progress until the next check()."""
        self._busy_since = None

    def release(self) -> None:
        """Release the lease, so that nobody has to wait until it expires."""
        if self._lost is None:
            with contextlib.suppress(errors.DatabaseError), self._context.store.writing() as work:
                work.leases.give_back(self._fence)

    @contextlib.contextmanager
    def renewing(self, warn: Callable[[str], None], on_lost: Callable[[], None]) -> Iterator[None]:
        """Renew the lease in a thread meanwhile, and release it at the end.

        In a thread, because a step may wait longer for a command than the lease lasts. The thread
        stops if the work hangs, so that another controller may take over. on_lost: is called when
        another one did.
        """
        ended = threading.Event()
        thread = threading.Thread(
            target=self._renew_until, args=(ended, warn, on_lost), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release()

    def _renew_until(
        self, ended: threading.Event, warn: Callable[[str], None], on_lost: Callable[[], None]
    ) -> None:
        is_failing = False
        while not ended.wait(self._seconds / _RENEWALS / (3 if is_failing else 1)):
            busy_since = self._busy_since
            if busy_since is not None and self._boot_clock() - busy_since > HANGS_AFTER_SECONDS:
                silence = f"No progress for {HANGS_AFTER_SECONDS:g} s"
                warn(f"{silence}: the lease is not renewed, and another controller can take over.")
                return
            try:
                self.renew()
                is_failing = False
            except errors.FencedError:
                on_lost()
                return
            except errors.OrchestratorError as exc:
                if not is_failing:
                    warn(f"The lease was not renewed: {exc}")
                is_failing = True


def acquire(
    context: contexts.Context,
    *,
    command: str,
    seconds: float,
    stand_by: bool = False,
    pause: Callable[[float], None] = time.sleep,
    inform: Callable[[str], None] = lambda sentence: None,
    monotonic: Callable[[], float] = time.monotonic,
    boot_clock: Callable[[], float] = contexts.boot_seconds,
) -> HeldLease:
    """Return the acquired lease. Raises HeldError if another controller is running.

    A holder whose process ended on this host is replaced at once, any other one when its lease
    expires. Clocks of hosts differ: without a database server, expiry is observed for the duration
    of the lease, not read off a clock.

    stand_by: wait until the lease is free; not possible for a database file on two hosts.
    inform: is called once when this waits. pause: may raise.
    """
    me = processes.this_process()
    observed: tuple[int, int] | None = None
    since = monotonic()
    has_changed = is_waiting = False
    while True:
        lease, has_one_clock = _read(context)
        if observed != (lease.fence, lease.renewals):
            has_changed = observed is not None
            observed, since = (lease.fence, lease.renewals), monotonic()
        has_expired = lease.lapsed if has_one_clock else monotonic() - since >= lease.seconds
        if lease.holder is None or has_ended(lease) or has_expired:
            taken_at = boot_clock()
            with context.store.writing() as work:
                fence = work.leases.take(
                    lease, me, command=command, seconds=seconds, here=context.clock.now()
                )
            if fence is None:
                continue
            return HeldLease(
                context, fence, seconds=seconds, boot_clock=boot_clock, taken_at=taken_at
            )
        is_elsewhere = not has_one_clock and lease.holder.host != me.host
        # A holder whose last renewal only seems old, because its clock differs, will renew.
        seems_alive = has_changed or has_one_clock or not lease.lapsed
        if seems_alive and (is_elsewhere or not stand_by):
            raise HeldError(_refusal(lease, command, is_elsewhere=is_elsewhere))
        if not is_waiting:
            inform(f"{lease.holder_description} is running; waiting for it to end.")
        is_waiting = True
        pause(lease.seconds / _READS)


def _read(context: contexts.Context) -> tuple[leases.Lease, bool]:
    """Return the lease, and whether its times come from the clock of a database server."""
    now = context.clock.now()
    with context.store.reading() as work:
        lease, has_one_clock = work.leases.read(now), work.leases.one_clock
    if lease is None:
        # Another process may add it first; other errors appear when it is read.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.leases.add()
        with context.store.reading() as work:
            lease = work.leases.read(now)
        if lease is None:
            raise errors.DatabaseError("The lease cannot be stored; `orchestrator db check` helps.")
    return lease, has_one_clock


def has_ended(lease: leases.Lease) -> bool:
    """Return whether the holder's process is known to have ended.

    Nothing is known about another boot: two machines may have the same name.
    """
    holder = lease.holder
    if holder is None or holder.boot_id != processes.boot_id():
        return False
    return processes.is_alive(holder) is False


def _refusal(lease: leases.Lease, command: str, *, is_elsewhere: bool) -> str:
    running = f"{lease.holder_description} is already running"
    if is_elsewhere:
        return (
            f"{running}, and this host is {socket.gethostname()}. Use that controller; a second "
            "host can stand by if the database is in PostgreSQL."
        )
    if command == "tick":
        return f"{running} and makes its own passes. Nothing was done."
    return f"{running}. Stop it first, or add --wait to stand by."
