"""Curves as JSON for the charts, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette import datastructures, requests, responses

from orchestrator import errors, jobs
from orchestrator.controller.metrics import curves
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.controller.sweeps import results
from orchestrator.jobs import naming
from orchestrator.metrics import choices, decimation
from orchestrator.rows import row_values
from orchestrator.web import selection, site

#: A chart has fewer pixels.
_BUCKETS = 600
#: Of the table beside a chart.
_TABLE_BUCKETS = 100
#: Lines in one figure.
MAX_LINES = 16


def as_json(request: requests.Request) -> responses.Response:
    """Answer with the axis of `x` ("step", "epoch", "time" or "seconds") and figures_of()."""
    web = site.of(request)
    axis = axis_of(request.query_params)
    selected = selected_jobs(web.context, request.query_params.getlist("job"))
    names = request.query_params.getlist("name")
    figures = figures_of(web, selected, axis, names)
    shown = "seconds" if axis == "time" and len(selected) > 1 else axis
    text = json.dumps({"axis": shown, "figures": figures}, separators=(",", ":"))
    return responses.Response(text, media_type="application/json")


def as_table(request: requests.Request) -> responses.Response:
    """Show the points of one metric, or of all."""
    web = site.of(request)
    axis = axis_of(request.query_params)
    selected = selected_jobs(web.context, request.query_params.getlist("job"))
    name = request.query_params.get("name", "")
    names = [name] if name else []
    figures = figures_of(web, selected, axis, names, buckets=_TABLE_BUCKETS)
    tables = [
        (figure["name"], figure["unit"], line["label"], [*zip(line["x"], line["y"], strict=True)])
        for figure in figures
        for line in figure["lines"]
    ]
    return site.page("curve_data.html.j2", name=name, axis=axis, tables=tables, selected=selected)


def axis_of(query: datastructures.QueryParams) -> curves.Axis:
    """Return the axis that an address names; "step" if it names none."""
    given = query.get("x", "step")
    return next((axis for axis in curves.AXES if axis == given), "step")


def selected_jobs(context: contexts.Context, words: Sequence[str]) -> list[jobs.Job]:
    """Return the jobs with these rows. Raises NotFoundError."""
    rows = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 19]
    with context.store.reading() as work:
        by_row = work.jobs.by_row(rows[: selection.MAX_COMPARED])
    if missing := [row for row in rows[: selection.MAX_COMPARED] if row not in by_row]:
        raise errors.NotFoundError(f"There is no job @{missing[0]}.")
    return [by_row[row] for row in dict.fromkeys(rows[: selection.MAX_COMPARED])]


def figures_of(
    web: site.Site,
    selected: Sequence[jobs.Job],
    axis: curves.Axis,
    names: Sequence[str] = (),
    *,
    buckets: int = _BUCKETS,
) -> list[dict[str, Any]]:
    """Return a figure for each metric, with a line for each job and rank.

    A figure has name, unit, lines, and the number of lines that are hidden; a line has a label, x
    and y (of equal length, y None for NaN), the last value and the number of values. Times of
    several jobs are the seconds since the first value of each.
    """
    with web.context.store.reading() as work:
        owners = chains.owners(work, selected)
    names_of_points = labels(web, selected)
    figures: dict[curves.Key, dict[str, Any]] = {}
    for job in selected:
        rows = [row for row, owner in owners.items() if owner == job.row]
        for key, of_ranks in web.curves.of(web.context, rows, axis).items():
            if names and key[0] not in names:
                continue
            empty = {"name": key[0], "unit": key[1], "lines": [], "hidden": 0}
            figure = figures.setdefault(key, empty)
            for curve in of_ranks:
                if len(figure["lines"]) >= MAX_LINES:
                    figure["hidden"] += 1
                elif curve.x:
                    is_relative = axis == "time" and len(selected) > 1
                    start = curve.x[0] if is_relative else 0.0
                    # A rank that is alone needs no name.
                    has_rank = curve.rank is not None and len(of_ranks) > 1
                    rank = f"rank {curve.rank}" if has_rank else ""
                    name = names_of_points.get(job.row) or f"{naming.name_of(job)} {job.name}"
                    label = rank if len(selected) == 1 else f"{name} {rank}".rstrip()
                    figure["lines"].append({"label": label, **_points(curve, buckets, start)})
    in_order = sorted(figures, key=lambda key: (choices.sort_key(key[0]), key[1]))
    return [figures[key] for key in in_order if figures[key]["lines"]]


def labels(web: site.Site, selected: Sequence[jobs.Job]) -> dict[int, str]:
    """Return by row what distinguishes jobs of sweeps from one another."""
    with web.context.store.reading() as work:
        mark = work.changes.of_all()
    rows = tuple(job.row for job in selected)
    labels_by_row: dict[int, str] = web.computed.of(
        ("labels", rows, mark), lambda: results.labels(web.context, selected)
    )
    return labels_by_row


def _points(curve: curves.Curve, buckets: int, start: float) -> Mapping[str, object]:
    x, y = decimation.decimate(curve.x, curve.y, buckets)
    if start:
        x = [round(at - start, 3) for at in x]
    # More digits than a chart can show would double the size.
    short = [None if value is None else float(f"{value:.7g}") for value in y]
    not_finite = curve.first_not_finite()
    return {
        "x": [int(at) if at == int(at) else at for at in x],
        "y": short,
        "last": row_values.number(curve.last),
        "count": len(curve.x),
        "nan_at": not_finite,
    }


def summaries(web: site.Site, job: jobs.Job) -> list[dict[str, object]]:
    """Return the last, lowest and highest value of each metric of a job."""
    with web.context.store.reading() as work:
        rows = list(chains.owners(work, [job]))
    shown = []
    for (name, unit), of_ranks in web.curves.of(web.context, rows, "step").items():
        known = [curve for curve in of_ranks if curve.x]
        extents = [extent for curve in known if (extent := curve.extent)]
        if known:
            shown.append(
                {
                    "name": name,
                    "unit": unit,
                    "last": known[0].last,
                    "at": int(known[0].x[-1]),
                    "low": min((low for low, _ in extents), default=None),
                    "high": max((high for _, high in extents), default=None),
                    "count": sum(len(curve.x) for curve in known),
                    "ranks": len(known),
                }
            )
    return shown
