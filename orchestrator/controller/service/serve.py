"""The controller as a process: one pass, or pass after pass, under the lease and with signals."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Literal, Self

from orchestrator import config, errors
from orchestrator.controller.resubmission import submitters
from orchestrator.controller.service import health, leases, passes
from orchestrator.controller.session import clock_check, contexts
from orchestrator.local import processes

#: Passes that fail for Slurm's sake follow one another more and more slowly, up to this.
SLOWEST_SECONDS = 300.0
#: A database that is away is tried again after so long, then after twice that, and so on.
DATABASE_AWAY_SECONDS = 5.0
#: Between two passes lies at least this much.
_LEAST_SECONDS = 1.0
#: Of the interval: a pass that comes a little early asks Slurm all the same.
_FLOOR_SHARE = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of the controller's log."""

    at: datetime.datetime
    level: Literal["info", "warning", "error"]
    #: start, standby, done, failed, said, lease, clock, stop
    event: str
    #: of passes.steps; "": of the controller itself
    step: str = ""
    text: str

    @property
    def job(self) -> str | None:
        """Return the job that it is about, as `@7`, where it names one."""
        found = re.search(r"@\d+\b", self.text)
        return found[0] if found else None


class Stop:
    """SIGTERM and SIGINT, as a wish to end that is looked at between two things. Use in `with`.

    The second signal of a kind ends the process at once.
    """

    def __enter__(self) -> Self:
        self.asked: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # The interpreter writes there whichever thread the kernel chose for the signal.
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        signal.signal(number, self._before[signal.Signals(number)])

    def check(self) -> None:
        """Raise Stopped where it was asked for."""
        if self.asked is not None:
            raise passes.Stopped

    def wake(self) -> None:
        """End the present `wait`; any thread may call it."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is woken; raises Stopped."""
        self.check()
        # Of a monotonic clock: who was stopped for ten minutes is late once.
        if select.select([self._read], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self.check()


def tick(
    context: contexts.Context, log: Callable[[LogLine], None], *, lease_seconds: float
) -> list[passes.Outcome]:
    """Do one pass under the lease; raises leases.HeldError where another controller acts."""
    with Stop() as stop:
        one = _Controller(context, log, stop, command="tick")
        holding = leases.acquire(
            context, command="tick", seconds=lease_seconds, pause=stop.wait, told=one.waits
        )
        with one.holding(holding):
            outcomes = one.one_pass(floor_seconds=None)
            one.store_health(outcomes, next_pass_seconds=None)
    return outcomes


def serve(
    context: contexts.Context,
    log: Callable[[LogLine], None],
    *,
    interval_seconds: float,
    lease_seconds: float,
    stand_by: bool,
) -> None:
    """Do pass after pass until SIGTERM or SIGINT, which end it between two things.

    Raises leases.HeldError where another controller acts, and FencedError where one took over;
    with `stand_by` it waits for the other's end instead. ConfigurationError: before a pass, where
    the project's file that it acts by is not trusted any more.
    """
    with Stop() as stop:
        one = _Controller(context, log, stop, command="serve")
        try:
            while True:
                holding = one.take_the_lease(lease_seconds, stand_by=stand_by)
                try:
                    with one.holding(holding):
                        one.pass_after_pass(interval_seconds)
                except errors.FencedError as exc:
                    one.log("error", "lease", str(exc))
                    if not stand_by:
                        raise
                    with contextlib.suppress(errors.DatabaseError):
                        submitters.disown(context)
        except passes.Stopped:
            one.log("info", "stop", "Ended; what was begun is done.")


class _Controller:
    """One controller: its context with the lease, its log, its file."""

    def __init__(
        self,
        context: contexts.Context,
        log: Callable[[LogLine], None],
        stop: Stop,
        *,
        command: str,
    ) -> None:
        self._plain = context
        self._log = log
        self._stop = stop
        self._command = command
        self._since = context.clock.now()
        self._failing_since: datetime.datetime | None = None
        self._step = ""

    def log(self, level: Literal["info", "warning", "error"], event: str, text: str) -> None:
        at = self._plain.clock.now()
        self._log(LogLine(at=at, level=level, event=event, step=self._step, text=text))

    def waits(self, text: str) -> None:
        self.log("info", "standby", text)

    def take_the_lease(self, seconds: float, *, stand_by: bool) -> leases.HeldLease:
        """Return the lease; a database that is away is waited for."""
        failures = 0
        while True:
            try:
                return leases.acquire(
                    self._plain,
                    command=self._command,
                    seconds=seconds,
                    stand_by=stand_by,
                    pause=self._stop.wait,
                    told=self.waits,
                )
            except errors.NewerDatabaseError:
                raise
            except errors.DatabaseError as exc:
                failures += 1
                self.log("error", "failed", str(exc))
                self._stop.wait(_doubled(DATABASE_AWAY_SECONDS, failures, 60.0))

    @contextlib.contextmanager
    def holding(self, holding: leases.HeldLease) -> Iterator[None]:
        """Act under the lease until the end, and give it back."""

        def check() -> None:
            self._stop.check()
            holding.proceed()

        self._since = self._plain.clock.now()
        self._holding = holding
        self._context = dataclasses.replace(
            self._plain,
            store=holding.store,
            actor="controller",
            reporter=contexts.Reporter(write=lambda level, text: self.log(level, "said", text)),
            guard=contexts.Guard(check=check, confirm_lease=holding.confirm),
        )
        with holding.kept(lambda text: self.log("warning", "lease", text), self._stop.wake):
            yield

    def one_pass(self, *, floor_seconds: float | None) -> list[passes.Outcome]:
        """Do each step once, and log what it did.

        Raises ConfigurationError where the project's file is not trusted any more.
        """
        config.refuse_changed(self._plain.configuration.project, self._plain.environ)
        check = clock_check.check_pass(self._context)
        context = check.context
        if context.clock.doubt:
            # Cron mails what is a warning: a leap is one, and its duration is not.
            self.log("warning" if check.is_new else "info", "clock", context.clock.doubt)
        elif check.is_over:
            self.log("info", "clock", "The clock is trusted again; what waited for it goes on.")
        self._began_at = context.clock.now()
        outcomes = []
        for outcome in passes.tick(context, floor_seconds=floor_seconds):
            self._step = outcome.step
            for sentence in outcome.done:
                self.log("info", "done", sentence)
            if outcome.error is not None:
                self.log("error", "failed", told(outcome.error))
            self._step = ""
            outcomes.append(outcome)
        return outcomes

    def pass_after_pass(self, interval_seconds: float) -> None:
        """Go on until `proceed` or the wait between two passes raises."""
        self.log("info", "start", f"Acts, with a pass every {interval_seconds:g} s.")
        # Where something is due sooner the pass comes sooner, and Slurm is not asked for that.
        floor = max(interval_seconds * _FLOOR_SHARE, self._plain.profile.poll_floor_seconds)
        failures = 0
        try:
            while True:
                try:
                    outcomes = self.one_pass(floor_seconds=floor)
                    due = passes.next_at(self._context, self._began_at)
                except errors.DatabaseError as exc:
                    self.log("error", "failed", str(exc))
                    outcomes = [passes.Outcome(step="database", error=exc, seconds=0.0)]
                    due = None
                failures = failures + 1 if _is_away(outcomes) else 0
                pause = _pause_seconds(outcomes, failures, interval_seconds)
                if due is not None:
                    left = (due - self._context.clock.now()).total_seconds()
                    pause = max(min(pause, left), _LEAST_SECONDS)
                self.store_health(outcomes, next_pass_seconds=pause)
                self._holding.rest()
                self._stop.wait(pause)
        except (passes.Stopped, errors.FencedError, errors.ConfigurationError):
            me = processes.this_process()
            configuration = self._plain.configuration
            health.end(
                configuration.state_dir,
                self._plain.clock.now(),
                me,
                shared_folders=configuration.shared_folders,
            )
            raise

    def store_health(
        self, outcomes: Sequence[passes.Outcome], *, next_pass_seconds: float | None
    ) -> None:
        """Write the file that tells how the controller is."""
        now = self._plain.clock.now()
        if all(outcome.error is None for outcome in outcomes):
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._began_at
        me = processes.this_process()
        newest = health.Pass(
            command=self._command,
            host=me.host,
            pid=me.pid,
            since=self._since,
            last_pass_at=self._began_at,
            took_seconds=round((now - self._began_at).total_seconds(), 3),
            steps={one.step: told(one.error) if one.error else "" for one in outcomes},
            next_pass_at=None
            if next_pass_seconds is None
            else now + datetime.timedelta(seconds=next_pass_seconds),
            failing_since=self._failing_since,
        )
        configuration = self._plain.configuration
        state_dir = configuration.state_dir
        try:
            health.store(state_dir, newest, shared_folders=configuration.shared_folders)
        except OSError as exc:
            # A full disk names no file.
            path = health.path_of(state_dir)
            self.log("warning", "said", f"{path} cannot be written: {exc.strerror}")


def told(error: Exception) -> str:
    """Return an error in one line; of a mistake of ours with its kind and place."""
    if isinstance(error, errors.OrchestratorError):
        return " ".join(str(error).split())
    where = ", ".join(getattr(error, "__notes__", ()))
    return " ".join(f"{type(error).__name__}: {error} ({where})".split())


def _is_away(outcomes: Sequence[passes.Outcome]) -> bool:
    away = (errors.SlurmError, errors.DatabaseError)
    return any(isinstance(outcome.error, away) for outcome in outcomes)


def _pause_seconds(
    outcomes: Sequence[passes.Outcome], failures: int, interval_seconds: float
) -> float:
    """Return how long after a pass the next one begins; `failures`: so many failed in a row."""
    if not failures:
        return interval_seconds
    if any(isinstance(outcome.error, errors.DatabaseError) for outcome in outcomes):
        return _doubled(DATABASE_AWAY_SECONDS, failures, interval_seconds)
    return _doubled(interval_seconds, failures, max(interval_seconds, SLOWEST_SECONDS))


def _doubled(seconds: float, failures: int, most: float) -> float:
    return min(seconds * 2.0 ** min(failures - 1, 20), most)
