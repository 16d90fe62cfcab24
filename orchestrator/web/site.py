"""What all pages work with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, cast

from starlette import requests, responses

from orchestrator.controller.metrics import curves
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import follow
from orchestrator.logs import windows
from orchestrator.rows import explanation_rows
from orchestrator.web import live, recent, rendering, running_actions, selection
from orchestrator.web.access import forms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """What pages share: the database, caches, and what they may do."""

    context: contexts.Context
    live: live.Live
    #: stores the traceback of an unexpected exception, and returns a message
    report_unexpected: Callable[[BaseException], str]
    curves: curves.Cache = dataclasses.field(default_factory=curves.Cache)
    #: by row and version of the job
    explanations: recent.Recent[tuple[int, int], explanation_rows.Explained] = dataclasses.field(
        default_factory=lambda: recent.Recent(256)
    )
    #: by what they show, and the state of the database
    computed: recent.Recent[Hashable, Any] = dataclasses.field(
        default_factory=lambda: recent.Recent(64)
    )
    #: by row
    sweeps: recent.Recent[int, follow.Followed] = dataclasses.field(
        default_factory=lambda: recent.Recent(8)
    )
    lines: windows.LineCounter = dataclasses.field(default_factory=windows.LineCounter)
    #: None: the pages cannot change anything
    running_actions: running_actions.RunningActions | None = None
    forms: forms.Forms = dataclasses.field(default_factory=forms.Forms)
    #: what the lists show; None: everything
    selection: selection.Selection | None = None
    #: the browser uses HTTPS
    is_secure: bool = False

    @contextlib.asynccontextmanager
    async def running(self, stopping: asyncio.Event) -> AsyncIterator[None]:
        """Keep the pages up to date, until actions that have begun have ended."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.live.running(stopping))
            if self.running_actions is not None:
                await stack.enter_async_context(self.running_actions.running(stopping))
            yield


def of(request: requests.Request) -> Site:
    """Return the site that answers a request."""
    return cast(Site, request.app.state.site)


def page(template: str, **values: object) -> responses.HTMLResponse:
    """Return a page; `values` are those of its template."""
    return responses.HTMLResponse(rendering.render(template, **values))
