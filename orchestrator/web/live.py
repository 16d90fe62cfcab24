"""Watches the database and logs for all viewers together, and refreshes the states of jobs.

A viewer costs nothing until something changes. While nobody looks, nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio.to_thread

from orchestrator import errors, jobs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.service import health
from orchestrator.controller.session import contexts, queries
from orchestrator.files import stamps

_Result = TypeVar("_Result")
#: Between two looks at the files while someone looks at a page.
LOOK_SECONDS = 0.5
#: PostgreSQL has no file to look at.
_SERVER_LOOK_SECONDS = 2.0
#: Between two attempts to refresh; Slurm is asked at most once in poll_floor_seconds.
_MIN_REFRESH_SECONDS = 2.0
#: A page that was loaded keeps the refreshes going for this time; an open page always does.
_WANTED_SECONDS = 30.0
#: Metrics are read from the log of a job at most this often.
_INGEST_SECONDS = 1.0
#: Each may need a connection to the database, of which there are 15.
_THREADS = 10
#: After an unexpected exception.
_PAUSE_SECONDS = 5.0
#: What pages follow, apart from single jobs -> a text that changes with what they show, from the
#: store of changes.
SUBJECTS: Mapping[str, Callable[[Any], str]] = {
    "jobs": lambda changes: changes.of_all(),
    "results": lambda changes: changes.of_results(),
    "schedules": lambda changes: changes.of_schedules(),
    "graphs": lambda changes: changes.of_graphs(),
    "controller": lambda changes: changes.of_refreshes(),
}
#: The row of a job, or one of SUBJECTS.
Subject: TypeAlias = "int | str"


@dataclasses.dataclass(eq=False)
class Viewer:
    """A page that someone looks at."""

    subject: Subject
    #: set when something has changed
    changed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


@dataclasses.dataclass
class _Watched:
    """A job that someone looks at."""

    job: jobs.Job
    stamp: stamps.Stamp = ()
    read_stamp: stamps.Stamp = ()
    read_at: float = 0.0


class Live:
    """Viewers and what has changed for them. Its methods are for the event loop."""

    def __init__(self, context: contexts.Context) -> None:
        self._context = context
        self._pass_file = health.path_of(context.configuration.state_dir)
        self._viewers: set[Viewer] = set()
        self._watched: dict[int, _Watched] = {}
        self._wanted_until = 0.0
        self._someone = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: of all that has viewers
        self._marks: dict[Subject, object] = {}
        #: set when the server stops
        self.stopping = asyncio.Event()
        #: why the pages may be old, by what failed; "": it does not fail any more
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """Why the pages may be old; empty: they are not."""
        return [problem for problem in self._problems.values() if problem]

    def want_refresh(self) -> None:
        """Refresh the states soon, unless they are new enough. Any thread may call it."""
        self._wanted_until = time.monotonic() + _WANTED_SECONDS
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._someone.set)

    @contextlib.contextmanager
    def viewing(self, subject: Subject) -> Iterator[Viewer]:
        """Let a page follow its subject; its `changed` is set with each change."""
        viewer = Viewer(subject)
        self._viewers.add(viewer)
        # The page may be older than the mark; without a mark the first one counts as a change.
        if subject in self._marks:
            viewer.changed.set()
        self._someone.set()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not any(other.subject == subject for other in self._viewers):
                self._marks.pop(subject, None)
                if isinstance(subject, int):
                    self._watched.pop(subject, None)

    @contextlib.asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Watch and refresh while the block runs. Viewers are woken when `stopping` is set."""
        self._loop = asyncio.get_running_loop()
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        self.stopping = stopping
        works = (self._watch, self._refresh, self._end)
        tasks = [asyncio.create_task(self._forever(work)) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop = None

    async def _forever(self, work: Callable[[], Awaitable[None]]) -> None:
        """Start again after an unexpected exception: pages must not stand still silently."""
        while not self.stopping.is_set():
            try:
                await work()
            except Exception as error:
                self._report(work.__name__, f"Updates failed: {type(error).__name__}: {error}")
                await asyncio.sleep(_PAUSE_SECONDS)
                self._report(work.__name__, "")

    def _report(self, name: str, problem: str) -> None:
        """Show on the pages what fails, or that it does not fail any more."""
        if problem == self._problems.get(name, ""):
            return
        self._problems[name] = problem
        if problem:
            self._context.reporter.warn(problem)
        self._notify(self._viewers)

    async def _end(self) -> None:
        await self.stopping.wait()
        self._notify(self._viewers)

    def _notify(self, viewers: Sequence[Viewer] | set[Viewer]) -> None:
        for viewer in list(viewers):
            viewer.changed.set()

    async def _watch(self) -> None:
        watch = stamps.Watch()
        file = self._context.store.file
        seconds = LOOK_SECONDS if file else _SERVER_LOOK_SECONDS
        while True:
            if not self._viewers:
                self._someone.clear()
                watch = stamps.Watch()
                await self._someone.wait()
            paths = [*([file, Path(f"{file}-wal")] if file else []), self._pass_file]
            stamp = await _in_thread(functools.partial(stamps.stamp, paths))
            subjects = {viewer.subject for viewer in self._viewers}
            may_have_changed = file is None or watch.may_have_changed(stamp)
            if may_have_changed or subjects != self._marks.keys():
                if not await self._compare_marks(subjects):
                    watch = stamps.Watch()
            await self._look_at_logs()
            await asyncio.sleep(seconds)

    async def _compare_marks(self, subjects: set[Subject]) -> bool:
        """Notify the viewers of what has changed in the database; False: it cannot be read."""

        def read() -> tuple[dict[Subject, object], dict[int, jobs.Job]]:
            rows = [subject for subject in subjects if isinstance(subject, int)]
            with self._context.store.reading() as work:
                marks: dict[Subject, object] = dict(work.changes.of_jobs(rows).items())
                for subject in subjects:
                    if isinstance(subject, str):
                        marks[subject] = SUBJECTS[subject](work.changes)
                if "controller" in subjects:
                    marks["controller"] = marks["controller"], stamps.stamp([self._pass_file])
                return marks, work.jobs.by_row(rows)

        try:
            marks, by_row = await _in_thread(read)
        except errors.OrchestratorError as error:
            self._report("read", str(error))
            return False
        self._report("read", "")
        for row, job in by_row.items():
            self._watched.setdefault(row, _Watched(job)).job = job
        changed = {
            subject
            for subject in subjects
            if subject not in self._marks or marks.get(subject) != self._marks[subject]
        }
        self._marks = {subject: marks.get(subject) for subject in subjects}
        self._notify([viewer for viewer in self._viewers if viewer.subject in changed])
        return True

    async def _look_at_logs(self) -> None:
        for row, watched in list(self._watched.items()):
            paths = [Path(path) for path in ingest.files_of(watched.job)]
            stamp = await _in_thread(functools.partial(stamps.stamp, paths))
            if stamp != watched.stamp:
                watched.stamp = stamp
                self._notify([viewer for viewer in self._viewers if viewer.subject == row])
            now = time.monotonic()
            if stamp != watched.read_stamp and now - watched.read_at >= _INGEST_SECONDS:
                watched.read_stamp, watched.read_at = stamp, now
                ingest_log = functools.partial(ingest.ingest_soon, self._context, watched.job)
                await self._try("ingest", ingest_log)

    async def _refresh(self) -> None:
        # It imports everything that talks to Slurm.
        from orchestrator.controller.resubmission import deferred_jobs

        floor_seconds = max(self._context.profile.poll_floor_seconds, _MIN_REFRESH_SECONDS)
        while True:
            if not self._viewers and time.monotonic() > self._wanted_until:
                self._someone.clear()
                await self._someone.wait()
            await self._try("refresh", lambda: deferred_jobs.refresh_and_send(self._context))
            await asyncio.sleep(floor_seconds)

    async def _try(self, name: str, work: Callable[[], object]) -> None:
        problem = ""
        try:
            await _in_thread(work)
        except errors.OrchestratorError as error:
            problem = f"Not updated: {error}"
        self._report(name, problem)


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    return await anyio.to_thread.run_sync(work)


def current_job(context: contexts.Context, row: int) -> jobs.Job:
    """Return a job with `stale_since`. Raises NotFoundError."""
    with context.store.reading() as work:
        # SQLite's integers have 64 bits.
        job = work.jobs.get(row) if row < 2**63 else None
        if job is None:
            raise errors.NotFoundError(f"There is no job @{row}.")
        return queries.with_staleness(context, [job])[0][0]
