"""Server-sent events. Each has an ID, from which a reconnected page goes on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator

import anyio.to_thread
from starlette import requests, responses

from orchestrator import errors, jobs
from orchestrator.logs import windows
from orchestrator.web import live, rendering, site

#: Proxies and sshd close silent connections, and a write shows that a page is gone.
_PING_SECONDS = 25.0
#: After a break the browser waits so long.
_RETRY_MILLISECONDS = 2000
_POSITION = re.compile(r"(\d{1,18})-(\d{1,18})-(\d{1,18})-(\d{1,20})-(\d{1,18})", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """What a page of a job shows: all up to here."""

    version: int = 0
    event: int = 0
    metric: int = 0
    #: of the log
    inode: int = 0
    offset_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.version}-{self.event}-{self.metric}-{self.inode}-{self.offset_bytes}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that a text names; the beginning if it names none."""
        match = _POSITION.fullmatch(text)
        if match is None:
            return cls()
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**dict(zip(names, map(int, match.groups()), strict=True)))


async def of_subject(request: requests.Request) -> responses.Response:
    """Report that something has changed of what a page shows."""
    web = site.of(request)
    subject = request.query_params.get("of", "jobs")
    if subject not in live.SUBJECTS:
        raise errors.NotFoundError(f"There are no events of {subject!r}.")

    async def events() -> AsyncIterator[str]:
        with web.live.viewing(subject) as viewer:
            yield _hello()
            async for is_ping in _changes(web.live, viewer):
                yield ": ping\n\n" if is_ping else _event("changed", {})

    return _stream(events())


async def of_job(request: requests.Request) -> responses.Response:
    """Report new states, metrics and log lines of a job."""
    web = site.of(request)
    row = request.path_params["row"]
    await anyio.to_thread.run_sync(live.current_job, web.context, row)
    given = request.headers.get("last-event-id") or request.query_params.get("from", "")
    follows_log = "log" in request.query_params

    async def events() -> AsyncIterator[str]:
        position = Position.parse(given)
        problems = web.live.problems
        with web.live.viewing(row) as viewer:
            yield _hello()
            async for is_ping in _changes(web.live, viewer):
                if is_ping:
                    yield ": ping\n\n"
                    continue
                if web.live.problems != problems:
                    problems = web.live.problems
                    yield _event("state", {})
                with contextlib.suppress(errors.DatabaseError):
                    new_events, position = await anyio.to_thread.run_sync(
                        _events_since, web, row, position, follows_log
                    )
                    for text in new_events:
                        yield text

    return _stream(events())


def _events_since(
    web: site.Site, row: int, seen: Position, follows_log: bool
) -> tuple[list[str], Position]:
    """Return the events since a position, and the new position."""
    with web.context.store.reading() as work:
        mark = work.changes.of_jobs([row]).get(row)
        job = work.jobs.get(row)
    events = []
    if mark is None or job is None:
        return [_event("state", {})], seen
    if (mark.version, mark.event) != (seen.version, seen.event):
        seen = dataclasses.replace(seen, version=mark.version, event=mark.event)
        events.append(_event("state", {"state": job.state}, seen))
    if mark.metric != seen.metric:
        seen = dataclasses.replace(seen, metric=mark.metric)
        events.append(_event("metrics", {}, seen))
    if follows_log:
        log, seen = _log_events(web, job, seen)
        events += log
    return events, seen


def _log_events(web: site.Site, job: jobs.Job, seen: Position) -> tuple[list[str], Position]:
    path = job.stdout_path
    events = []
    is_more = path is not None
    while is_more and path is not None:
        try:
            window = windows.added(path, seen.inode, seen.offset_bytes)
            name = "log"
            if window is None:
                window, name = windows.newest(path, web.lines), "log-reset"
        except errors.OrchestratorError:
            break
        is_new = window.lines or window.partial or name == "log-reset"
        seen = dataclasses.replace(seen, inode=window.inode, offset_bytes=window.end_bytes)
        fields = {name: getattr(window, name) for name in ("first_line", "lines", "partial")}
        if is_new:
            events.append(_event(name, fields, seen))
        is_more = bool(window.lines) and window.end_bytes < window.size_bytes and not window.partial
    return events, seen


async def _changes(updates: live.Live, viewer: live.Viewer) -> AsyncIterator[bool]:
    """Yield False after a change, and True after a while without one, until the server stops."""
    while not updates.stopping.is_set():
        is_ping = False
        try:
            await asyncio.wait_for(viewer.changed.wait(), _PING_SECONDS)
        except TimeoutError:
            is_ping = True
        if updates.stopping.is_set():
            return
        viewer.changed.clear()
        yield is_ping


def _hello() -> str:
    return f"retry: {_RETRY_MILLISECONDS}\n" + _event("hello", {"version": rendering.version()})


def _event(name: str, data: object, position: Position | None = None) -> str:
    # JSON has no line ends.
    number = "" if position is None else f"id: {position}\n"
    return f"{number}event: {name}\ndata: {json.dumps(data)}\n\n"


def _stream(events: AsyncIterator[str]) -> responses.Response:
    # nginx and Open OnDemand's proxy would hold events back.
    headers = {"x-accel-buffering": "no"}
    return responses.StreamingResponse(events, media_type="text/event-stream", headers=headers)
