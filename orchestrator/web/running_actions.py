"""Actions in progress. Each runs once, in a thread, and its result is kept for its page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal

import anyio
import anyio.to_thread

from orchestrator import errors
from orchestrator.controller.session import contexts
from orchestrator.rows import action_reports

#: The threads of the pages are not used up.
_AT_ONCE = 2
_MAX_KEPT = 256
_NOT_BEGUN = "The server was stopped before this began: nothing was changed."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """How an action ended."""

    report: action_reports.Report
    #: jobs that were acted on, or are new
    rows: Sequence[int] = ()


@dataclasses.dataclass(kw_only=True)
class RunningAction:
    """An action that waits, runs, or has ended and has a result."""

    title: str
    #: what it acts on, as messages name it
    targets: str
    #: address of the page to return to, and its name
    back: tuple[str, str]
    started_at: datetime.datetime
    result: Result | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


class RunningActions:
    """All actions of a server, by number."""

    def __init__(
        self, context: contexts.Context, report_unexpected: Callable[[BaseException], str]
    ) -> None:
        self._context = context
        self._report_unexpected = report_unexpected
        self._runs: dict[str, RunningAction] = {}
        #: numbers of all actions, also of those that are kept no more
        self._begun: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        #: set at the end: no action waits for Slurm any more
        self._waits_no_more = threading.Event()
        #: whether the server is asked to stop
        self._is_stopping: Callable[[], bool] = lambda: False
        self._not_begun: list[RunningAction] = []

    def get(self, number: str) -> RunningAction | None:
        """Return an action; None: there is none with this number, or it is kept no more."""
        return self._runs.get(number)

    def start(
        self,
        number: str,
        work: Callable[[contexts.Context], Result],
        *,
        title: str,
        targets: str,
        back: tuple[str, str],
    ) -> RunningAction | None:
        """Begin an action, unless one with this number has begun. Call it in the event loop.

        None: it has begun, and is kept no more.
        """
        if number in self._begun:
            return self._runs.get(number)
        self._begun.add(number)
        now = self._context.clock.now()
        run = RunningAction(title=title, targets=targets, back=back, started_at=now)
        self._runs[number] = run
        done = [key for key, each in self._runs.items() if each.result is not None]
        for key in done[: max(0, len(self._runs) - _MAX_KEPT)]:
            del self._runs[key]
        task = asyncio.create_task(self._carry_out(run, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    @contextlib.asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Begin no action after `stopping` is set, and report those that have not begun.

        At the end wait for those that have begun; they wait for Slurm no more.
        """
        self._is_stopping = stopping.is_set
        try:
            yield
        finally:
            self._waits_no_more.set()
            await asyncio.gather(*self._tasks)
            for run in self._not_begun:
                self._context.reporter.warn(
                    f"Not done, because the server was stopped: {run.title} ({run.targets})"
                )

    async def _carry_out(
        self, run: RunningAction, work: Callable[[contexts.Context], Result]
    ) -> None:
        carry_out = functools.partial(self._result, run, work)
        run.result = await anyio.to_thread.run_sync(carry_out, limiter=self._limiter)
        run.ended.set()

    def _result(self, run: RunningAction, work: Callable[[contexts.Context], Result]) -> Result:
        if self._is_stopping():
            self._not_begun.append(run)
            return Result(report=action_reports.Report(problems=[_NOT_BEGUN]))
        context = dataclasses.replace(
            self._context,
            clock=dataclasses.replace(self._context.clock, sleep=self._sleep),
            reporter=contexts.Reporter(write=functools.partial(_write, run.notes)),
            through="the web page",
            # Of the refresh, which another thread may be doing.
            steady_jobs={},
        )
        try:
            with context.store.explained():
                return work(context)
        except errors.OrchestratorError as error:
            problem = str(error)
        except Exception as error:
            problem = self._report_unexpected(error)
        return Result(report=action_reports.Report(problems=[problem]))

    def _sleep(self, seconds: float) -> None:
        if self._waits_no_more.wait(seconds):
            raise errors.NotEndedError("the server stopped before Slurm showed the change")


def _write(notes: list[str], level: Literal["info", "warning"], text: str) -> None:
    notes.append(text)
