"""Baselines: results that were saved to compare later ones with."""

from __future__ import annotations

import dataclasses

from starlette import requests, responses

from orchestrator.controller.reports import baselines
from orchestrator.web import site

#: Columns of the runs of a baseline, as in `baseline show NAME`.
_COLUMNS = ("name", "size", "throughput", "epoch_seconds", "accuracy", "node_list", "attributes")


def show_all(request: requests.Request) -> responses.Response:
    web = site.of(request)
    with web.context.store.reading() as work:
        stored = work.baselines.newest()
    newest = {each.name: each.row for each in reversed(stored)}
    return site.page(
        "baselines.html.j2",
        rows=[(each, newest[each.name] == each.row) for each in stored],
    )


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    name = request.path_params["name"]
    baseline = baselines.find(web.context, name)
    with web.context.store.reading() as work:
        newest, *replaced = work.baselines.newest(name=name)
    return site.page(
        "baseline.html.j2",
        baseline=newest,
        replaced=replaced,
        unit=baseline.unit,
        columns=_COLUMNS,
        runs=[dataclasses.asdict(measurement) for measurement in baseline.measurements],
    )
