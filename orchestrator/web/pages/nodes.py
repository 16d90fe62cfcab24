"""Nodes: which of them jobs failed on or ran slowly on."""

from __future__ import annotations

import datetime

from starlette import requests, responses

from orchestrator.controller.nodes import record
from orchestrator.web import site

AGES = {"1d": 1, "7d": 7, "30d": 30, "365d": 365}
_MAX_NODES = 500


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    age = request.query_params.get("age", "30d")
    days = AGES.get(age, 30)
    since = web.context.clock.now() - datetime.timedelta(days=days)
    nodes = record.read(web.context, since)
    return site.page(
        "nodes.html.j2",
        nodes=nodes[:_MAX_NODES],
        hidden=max(0, len(nodes) - _MAX_NODES),
        ages=AGES,
        age=age if age in AGES else "30d",
        nodes_settings=web.context.configuration.nodes,
    )
