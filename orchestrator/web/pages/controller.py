"""The controller's health."""

from __future__ import annotations

from starlette import requests, responses

from orchestrator.controller.service import health
from orchestrator.web import site


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    context = web.context
    state_dir, now = context.configuration.state_dir, context.clock.now()
    state = health.examine(context.store, state_dir, now)
    with context.store.reading() as work:
        refreshes = work.refreshes.all()
    return site.page(
        "controller.html.j2",
        state=state,
        refreshes=refreshes,
        database=context.store.describe(),
        database_name=context.store.shown_name,
        poll_floor_seconds=context.profile.poll_floor_seconds,
        messages=[*state.problems, *web.live.problems],
    )
