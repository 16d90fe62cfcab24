"""Curves and settings of several jobs side by side."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence

from starlette import requests, responses

from orchestrator import jobs
from orchestrator.controller.metrics import curves
from orchestrator.controller.session import contexts, queries
from orchestrator.jobs import naming
from orchestrator.metrics import summaries
from orchestrator.web import selection, site
from orchestrator.web.pages import curve_data, job

#: Jobs that may be added, below the search.
_MAX_CANDIDATES = 20


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    query = request.query_params
    axis = curve_data.axis_of(query)
    selected = curve_data.selected_jobs(web.context, query.getlist("job"))
    rows = [each.row for each in selected]
    search = query.get("q", "").strip()
    labels = curve_data.labels(web, selected)
    return site.page(
        "compare.html.j2",
        jobs=[
            (each, naming.name_of(each), _url([row for row in rows if row != each.row], axis))
            for each in selected
        ],
        axis=axis,
        axes=[(name, _url(rows, name)) for name in curves.AXES],
        candidates=[
            (each, naming.name_of(each), _url([*rows, each.row], axis))
            # Other jobs are not exported, not even their names.
            for each in (() if web.selection else _candidates(web.context, selected, search))
        ],
        q=search,
        rows=rows,
        is_full=len(rows) >= selection.MAX_COMPARED,
        data_url=f"/curves.json?{urllib.parse.urlencode([('job', row) for row in rows])}",
        measured=_measured(web, selected),
        labels=[labels.get(each.row) for each in selected] if labels else None,
        settings=_differing_settings(web, selected),
    )


def _url(rows: Sequence[int], axis: str) -> str:
    pairs: list[tuple[str, object]] = [("job", row) for row in rows]
    if axis != "step":
        pairs.append(("x", axis))
    return f"/compare?{urllib.parse.urlencode(pairs)}"


def _candidates(
    context: contexts.Context, selected: Sequence[jobs.Job], search: str
) -> list[jobs.Job]:
    """Return jobs that match the search, or else resemble the selected ones, newest first."""
    query = jobs.JobQuery(limit=_MAX_CANDIDATES + len(selected))
    if search:
        query = jobs.JobQuery(words=search.split()[:8], limit=query.limit)
    elif selected and selected[0].sweep:
        query = jobs.JobQuery(sweeps=(selected[0].sweep,), limit=query.limit)
    elif selected:
        query = jobs.JobQuery(names=(selected[0].name,), limit=query.limit)
    rows = {each.row for each in selected}
    matching, _ = queries.list_jobs(context, query)
    started = [each for each in matching if each.row not in rows and each.started_at]
    return started[:_MAX_CANDIDATES]


def _measured(web: site.Site, selected: Sequence[jobs.Job]) -> list[dict[str, object]]:
    """Return for each metric the last and the best value of each job."""
    by_job = [
        {(each["name"], each["unit"]): each for each in curve_data.summaries(web, one)}
        for one in selected
    ]
    table = []
    for key in sorted({key for known in by_job for key in known}, key=str):
        direction = summaries.direction(str(key[0]))
        best = {1: "high", -1: "low"}.get(direction)
        values = [known.get(key) for known in by_job]
        table.append(
            {
                "name": key[0],
                "unit": key[1],
                "best": {"high": "highest", "low": "lowest", None: ""}[best],
                "values": [
                    None if each is None else (each["last"], best and each[best]) for each in values
                ],
            }
        )
    return table


def _differing_settings(
    web: site.Site, selected: Sequence[jobs.Job]
) -> list[tuple[str, list[object]]]:
    """Return the settings that are not the same in all jobs."""
    with web.context.store.reading() as work:
        specs_by_token = work.jobs.specs([each.token for each in selected])
    by_token = {token: job.settings_of(web, token, spec) for token, spec in specs_by_token.items()}
    known: list[Mapping[str, object]] = [by_token[each.token] for each in selected]
    # The name has a column of its own.
    keys = [
        key for key in dict.fromkeys(key for each in known for key in each) if key != "job.name"
    ]
    values = {key: [settings.get(key) for settings in known] for key in keys}
    return [(key, each) for key, each in values.items() if any(one != each[0] for one in each)]
