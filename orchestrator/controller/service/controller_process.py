"""The controller as a process: controller passes under the lease, until a signal stops it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import re
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Literal, Self

from orchestrator import config, errors
from orchestrator.controller.monitoring import metrics_file
from orchestrator.controller.resubmission import submitters
from orchestrator.controller.service import health, leases, passes
from orchestrator.controller.session import clock_check, contexts
from orchestrator.local import processes

#: While Slurm does not answer, the time between passes doubles up to this.
_MAX_INTERVAL_SECONDS = 300.0
#: While the database is not available, the time between attempts doubles from this.
_DATABASE_RETRY_SECONDS = 5.0
#: Shortest time between two passes.
_MIN_INTERVAL_SECONDS = 1.0
#: Part of the interval: a pass that starts a little early still queries Slurm.
_FLOOR_PART = 0.9

_Level = Literal["info", "warning", "error"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogLine:
    at: datetime.datetime
    level: _Level
    #: start, standby, done, failed, message, lease, clock, stop
    event: str
    #: one of passes.steps; "": the controller itself
    step: str = ""
    text: str

    @property
    def job(self) -> str | None:
        """The job in the text, as `@7`; None without one."""
        match = re.search(r"@\d+\b", self.text)
        return match[0] if match else None


class StopSignals:
    """SIGTERM and SIGINT as a request that is checked between two actions. Use with `with`.

    The second signal of a kind ends the process at once.
    """

    def __enter__(self) -> Self:
        self._is_requested = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # The interpreter writes there, whichever thread the kernel chose for the signal.
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, self._request)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._is_requested = True
        signal.signal(number, self._before[signal.Signals(number)])

    def check(self) -> None:
        """Raise Stopped if it was requested."""
        if self._is_requested:
            raise passes.Stopped

    def wake(self) -> None:
        """End the current `wait`; any thread may call it."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> None:
        """Wait for this time, or until wake(). Raises Stopped."""
        self.check()
        # select() uses a monotonic clock.
        if select.select([self._read], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self.check()


def tick(context: contexts.Context, log: Callable[[LogLine], None]) -> list[passes.Outcome]:
    """Make one pass under the lease. Raises leases.HeldError if another controller is running."""
    with StopSignals() as stop:
        controller = _Controller(context, log, stop, command="tick")
        with controller.under_lease(controller.acquire(stand_by=False)):
            outcomes = controller.make_pass(floor_seconds=None)
            controller.store_health(outcomes, next_pass_seconds=None)
    return outcomes


def serve(
    context: contexts.Context,
    log: Callable[[LogLine], None],
    *,
    interval_seconds: float,
    stand_by: bool,
) -> None:
    """Make passes until SIGTERM or SIGINT, which stop it between two actions.

    Raises leases.HeldError if another controller is running, and FencedError if one took over; with
    `stand_by` it waits for the end of the other one instead. Raises ConfigurationError before a
    pass if the project's file is not trusted any more.
    """
    with StopSignals() as stop:
        controller = _Controller(context, log, stop, command="serve")
        try:
            while True:
                lease = controller.acquire_patiently(stand_by=stand_by)
                try:
                    with controller.under_lease(lease):
                        controller.make_passes(interval_seconds)
                except errors.FencedError as exc:
                    controller.log("error", "lease", str(exc))
                    if not stand_by:
                        raise
                    with contextlib.suppress(errors.DatabaseError):
                        submitters.disown(context)
        except passes.Stopped:
            controller.log("info", "stop", "Controller stopped.")


class _Controller:
    def __init__(
        self,
        context: contexts.Context,
        log: Callable[[LogLine], None],
        stop: StopSignals,
        *,
        command: str,
    ) -> None:
        #: without the lease
        self._plain = context
        self._log = log
        self._stop = stop
        self._command = command
        self._failing_since: datetime.datetime | None = None
        self._step = ""
        self._me = processes.this_process()

    def log(self, level: _Level, event: str, text: str) -> None:
        at = self._plain.clock.now()
        self._log(LogLine(at=at, level=level, event=event, step=self._step, text=text))

    def acquire(self, *, stand_by: bool) -> leases.HeldLease:
        return leases.acquire(
            self._plain,
            command=self._command,
            seconds=self._plain.profile.lease_seconds,
            stand_by=stand_by,
            pause=self._stop.wait,
            inform=lambda text: self.log("info", "standby", text),
        )

    def acquire_patiently(self, *, stand_by: bool) -> leases.HeldLease:
        """Acquire the lease, and wait while the database is not available."""
        failures = 0
        while True:
            try:
                return self.acquire(stand_by=stand_by)
            except errors.NewerDatabaseError:
                raise
            except errors.DatabaseError as exc:
                failures += 1
                self.log("error", "failed", str(exc))
                self._stop.wait(_doubled(_DATABASE_RETRY_SECONDS, failures, 60.0))

    @contextlib.contextmanager
    def under_lease(self, lease: leases.HeldLease) -> Iterator[None]:
        """Keep the lease until the end, and then release it."""

        def check() -> None:
            self._stop.check()
            lease.check()

        self._since = self._plain.clock.now()
        self._lease = lease
        self._context = dataclasses.replace(
            self._plain,
            store=lease.store,
            actor="controller",
            # It remembers the last output of squeue.
            slurm_client=functools.cache(self._plain.slurm_client),
            reporter=contexts.Reporter(write=lambda level, text: self.log(level, "message", text)),
            guard=contexts.Guard(check=check, confirm_lease=lease.confirm),
        )
        with lease.renewing(lambda text: self.log("warning", "lease", text), self._stop.wake):
            yield

    def make_pass(self, *, floor_seconds: float | None) -> list[passes.Outcome]:
        """Run each step once, and log what it did.

        Raises ConfigurationError if the project's file is not trusted any more.
        """
        self._began_at = self._plain.clock.now()
        config.refuse_changed(self._plain.configuration.project, self._plain.environ)
        check = clock_check.check_pass(self._context)
        context = check.context
        if context.clock.doubt:
            # Cron mails warnings: the start of a doubt is one, its duration is not.
            self.log("warning" if check.is_new else "info", "clock", context.clock.doubt)
        elif check.is_over:
            self.log("info", "clock", "The clock is trusted again; deferred work resumes.")
        outcomes = []
        for outcome in passes.run(context, floor_seconds=floor_seconds):
            self._step = outcome.step
            for sentence in outcome.done:
                self.log("info", "done", sentence)
            if outcome.error is not None:
                self.log("error", "failed", _error_line(outcome.error))
            self._step = ""
            outcomes.append(outcome)
        return outcomes

    def make_passes(self, interval_seconds: float) -> None:
        """Make passes until a check or the wait between two passes raises."""
        self.log("info", "start", f"Controller running, one pass every {interval_seconds:g} s.")
        # A pass that comes sooner, because work is due, does not query Slurm.
        floor = max(interval_seconds * _FLOOR_PART, self._plain.profile.poll_floor_seconds)
        failures = 0
        try:
            while True:
                try:
                    outcomes = self.make_pass(floor_seconds=floor)
                    due = passes.next_at(self._context, self._began_at)
                except errors.DatabaseError as exc:
                    self.log("error", "failed", str(exc))
                    outcomes = [passes.Outcome(step="database", error=exc, seconds=0.0)]
                    due = None
                first, most = _retry_seconds(outcomes, interval_seconds)
                failures = failures + 1 if most else 0
                pause = _doubled(first, failures, most) if failures else interval_seconds
                if due is not None:
                    remaining = (due - self._context.clock.now()).total_seconds()
                    pause = max(min(pause, remaining), _MIN_INTERVAL_SECONDS)
                self.store_health(outcomes, next_pass_seconds=pause)
                self._lease.rest()
                self._stop.wait(pause)
        except (passes.Stopped, errors.FencedError, errors.ConfigurationError):
            if health.end(self._plain.configuration, self._plain.clock.now(), self._me):
                metrics_file.remove(self._plain)
            raise

    def store_health(
        self, outcomes: Sequence[passes.Outcome], *, next_pass_seconds: float | None
    ) -> None:
        now = self._plain.clock.now()
        next_pass_at = None
        if next_pass_seconds is not None:
            next_pass_at = now + datetime.timedelta(seconds=next_pass_seconds)
        steps = {
            outcome.step: _error_line(outcome.error) if outcome.error else ""
            for outcome in outcomes
        }
        self._failing_since = (
            (self._failing_since or self._began_at) if any(steps.values()) else None
        )
        newest = health.Pass(
            command=self._command,
            host=self._me.host,
            pid=self._me.pid,
            since=self._since,
            last_pass_at=self._began_at,
            took_seconds=round((now - self._began_at).total_seconds(), 3),
            steps=steps,
            next_pass_at=next_pass_at,
            failing_since=self._failing_since,
        )
        try:
            health.store(self._plain.configuration, newest)
        except OSError as exc:
            # The error of a full disk names no file.
            path = health.path_of(self._plain.configuration.state_dir)
            self.log("warning", "message", f"{path} cannot be written: {exc.strerror}")
        try:
            metrics_file.write(self._context)
        except Exception as exc:
            # A bug in monitoring must not stop the controller.
            self.log("error", "failed", f"metrics_file: {_error_line(exc)}")


def _error_line(error: Exception) -> str:
    """Return an error in one line; that of a bug with its kind and place."""
    text = str(error)
    if not isinstance(error, errors.OrchestratorError):
        place = ", ".join(getattr(error, "__notes__", ()))
        text = f"{type(error).__name__}: {error} ({place})"
    return " ".join(text.split())


def _retry_seconds(
    outcomes: Sequence[passes.Outcome], interval_seconds: float
) -> tuple[float, float]:
    """Return the first and the longest pause after a failed pass; 0 if Slurm and database work."""
    kinds = tuple(type(outcome.error) for outcome in outcomes)
    if any(issubclass(kind, errors.DatabaseError) for kind in kinds):
        return _DATABASE_RETRY_SECONDS, interval_seconds
    if any(issubclass(kind, errors.SlurmError) for kind in kinds):
        return interval_seconds, max(interval_seconds, _MAX_INTERVAL_SECONDS)
    return 0.0, 0.0


def _doubled(seconds: float, failures: int, most: float) -> float:
    return min(seconds * 2.0 ** min(failures - 1, 20), most)
