"""Sweeps: how far they are, and which point is best."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence

from starlette import datastructures, requests, responses

from orchestrator import errors
from orchestrator.controller.sweeps import follow, queries
from orchestrator.jobs import naming
from orchestrator.metrics import choices
from orchestrator.patterns import aliases
from orchestrator.rows import sweep_rows
from orchestrator.sweeps import parameters, result_notes, results
from orchestrator.web import parallel, site

_MAX_SWEEPS = 100
#: Rows of the table of results, unless all are asked for.
_MAX_ROWS = 500
#: Columns beside parameters and metrics.
_COLUMNS = ("rank", "point", "runs", "state", "job_id")
#: Parts of the progress bar, and their kind in style.css.
_PARTS = {
    "completed": "completed",
    "running": "running",
    "pending": "waiting",
    "waiting": "waiting",
    "failed": "failed",
    "missing": "stopped",
    "unsubmitted": "none",
}


def show_all(request: requests.Request) -> responses.Response:
    web = site.of(request)
    web.live.want_refresh()
    with web.context.store.reading() as work:
        if web.selection is None:
            newest = work.sweeps.newest(limit=_MAX_SWEEPS)
        else:
            newest = [sweep for row in web.selection.sweeps if (sweep := work.sweeps.get(row))]
        rows = [sweep_rows.sweep_row(each) for each in queries.summaries(work, newest)]
    return site.page(
        "sweeps.html.j2", rows=[(row, _progress(row)) for row in rows], limit=_MAX_SWEEPS
    )


def _progress(row: dict[str, object]) -> list[tuple[str, str, int, float, float]]:
    """Return the parts of the bar: name, kind, points, and the place and width in percent."""
    parts = []
    total, left = max(int(str(row["points"])), 1), 0.0
    for name, kind in _PARTS.items():
        count = int(str(row[name]))
        width = round(100 * count / total, 2)
        if count:
            parts.append((name, kind, count, round(left, 2), width))
        left += width
    return parts


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    web.live.want_refresh()
    sweep = queries.find(web.context, f"@{request.path_params['row']}")
    with web.context.store.reading() as work:
        (summary,) = queries.summaries(work, [sweep])
        mark = work.changes.of_results()
    followed: follow.Followed = web.sweeps.of(sweep.row, lambda: follow.Followed(sweep.row))
    material = followed.material(web.context)
    query = request.query_params
    names = [name for name in material.names if name not in ("step", "epoch")]
    problem = ""
    try:
        words = query.getlist("metric") or choices.usual_names(material.names)
        chosen = choices.resolve(words, material.names, 0, alias=aliases.normalized)
    except choices.ChoiceError as error:
        words, chosen, problem = [], [], f"{error}."
    built = web.computed.of(
        ("results", sweep.row, mark, *words), lambda: _built(web, followed, chosen)
    )
    shown, by = _sorted(built, query)
    row = sweep_rows.sweep_row(summary)
    most = len(shown.rows) if "all" in query else _MAX_ROWS
    axes, lines = parallel.draw(built)
    has_repeats = built.has_repeats
    return site.page(
        "sweep.html.j2",
        sweep=sweep,
        row=row,
        progress=_progress(row),
        states=sweep_rows.state_rows(summary),
        columns=_headings(shown, query, by),
        lines=[_line(each, shown, has_repeats=has_repeats) for each in shown.rows[:most]],
        hidden=max(0, len(shown.rows) - most),
        notes=[*result_notes.legend(shown), *result_notes.warnings(shown)],
        names=names,
        chosen=[choice.label for choice in chosen],
        problem=problem,
        axes=axes,
        curves=lines,
        drawing=parallel,
        may_act=web.running_actions is not None,
    )


def _built(
    web: site.Site, followed: follow.Followed, chosen: Sequence[choices.Choice]
) -> results.Results:
    material, runs = followed.runs(web.context, chosen)
    labels = [choice.label for choice in chosen]
    points = parameters.Points(material.points, material.document, (*_COLUMNS, *labels))
    return results.build(runs, points, chosen)


def _sorted(
    built: results.Results, query: datastructures.QueryParams
) -> tuple[results.Results, str]:
    """Return the results in their order, and the column by which they are sorted."""
    chosen = built.choices
    first = chosen[0].label if chosen and chosen[0].direction else ""
    by = query.get("sort", "") or ("" if "reverse" not in query else first or "point")
    if not by:
        return built, first
    try:
        return results.ordered(built, by, is_reversed="reverse" in query), by
    except ValueError as error:
        raise errors.NotFoundError(f"{error}.") from error


def _headings(
    shown: results.Results, query: datastructures.QueryParams, by: str
) -> list[tuple[str, str | None, bool]]:
    """Return for each column its heading, the address that sorts by it, and if it is sorted."""
    sortable = ["point", *(each.heading for each in shown.columns)]
    sortable += [choice.label for choice in shown.choices]
    kept = [("metric", word) for word in query.getlist("metric")]

    def url(name: str) -> str:
        pairs = [*kept, ("sort", name)]
        if name == by and "reverse" not in query:
            pairs.append(("reverse", "1"))
        return f"?{urllib.parse.urlencode(pairs)}"

    heads = ["rank", *sortable, *(["runs"] if shown.has_repeats else []), "state", "job"]
    return [(name, url(name) if name in sortable else None, name == by) for name in heads]


def _line(row: results.Row, shown: results.Results, *, has_repeats: bool) -> dict[str, object]:
    job = row.runs[0].point.job
    return {
        "rank": row.rank,
        "point": row.number,
        "numbers": naming.fold_tasks(run.point.number for run in row.runs),
        "values": [parameters.shown(row.parameters[each.key]) for each in shown.columns],
        "cells": [result_notes.number(cell) for cell in row.cells],
        "runs": result_notes.counted(row) if has_repeats else None,
        "state": result_notes.states(row.runs),
        "job": None if job is None else (job.row, naming.name_of(job), job.state),
        "is_final": row.is_final,
    }
