"""The results of a sweep as rows. The JSON fields are a contract."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.jobs import naming
from orchestrator.rows import row_values
from orchestrator.sweeps import parameters, result_notes, results


def item(row: results.Row, shown: results.Results) -> dict[str, object]:
    return {
        "rank": row.rank,
        "point": row.number,
        "parameters": dict(row.parameters),
        "metrics": {
            choice.label: {
                "name": choice.name,
                "statistic": choice.statistic or None,
                "at": choice.at or None,
                "direction": {1: "max", -1: "min"}.get(choice.direction),
                **row_values.fields_of(cell, ("value", "low", "high", "count", "unit")),
            }
            for choice, cell in zip(shown.choices, row.cells, strict=True)
        },
        "is_final": row.is_final,
        "state": result_notes.states(row.runs),
        "runs": [_run(run, shown) for run in row.runs],
    }


def _run(run: results.Run, shown: results.Results) -> dict[str, object]:
    point = run.point
    measured = {
        choice.label: None
        if value is None
        else row_values.fields_of(value, ("value", "step", "epoch"))
        for choice, value in zip(shown.choices, run.measured, strict=True)
    }
    return {
        **row_values.fields_of(point, ("number", "name", "repeat", "settings")),
        **row_values.fields_of(point.job, ("state", "job_id", "row")),
        "metrics": measured,
    }


def _heads(row: results.Row, shown: results.Results) -> dict[str, object]:
    by_heading = {each.heading: row.parameters[each.key] for each in shown.columns}
    return {"rank": row.rank, "point": row.number, **by_heading}


def _tails(row: results.Row, shown: results.Results) -> dict[str, object]:
    tails: dict[str, object] = {"state": result_notes.states(row.runs)}
    if shown.has_repeats:
        return {"runs": result_notes.counted(row), **tails}
    job = row.runs[0].point.job
    return {**tails, "job_id": None if job is None else naming.name_of(job)}


def _columns(shown: results.Results, of_metrics: Sequence[str]) -> list[str]:
    headings = [each.heading for each in shown.columns]
    tails = ["runs", "state"] if shown.has_repeats else ["state", "job_id"]
    return ["rank", "point", *headings, *of_metrics, *tails]


def line(row: results.Row, shown: results.Results) -> dict[str, object]:
    """Return a row for people, with means and intervals as text."""
    heads = _heads(row, shown)
    texts = {each.heading: parameters.shown(row.parameters[each.key]) for each in shown.columns}
    pairs = zip(shown.choices, row.cells, strict=True)
    numbers = {choice.label: result_notes.number(cell) for choice, cell in pairs}
    return {**heads, **texts, **numbers, **_tails(row, shown)}


def line_columns(shown: results.Results) -> list[str]:
    return _columns(shown, [choice.label for choice in shown.choices])


def value_row(row: results.Row, shown: results.Results) -> dict[str, object]:
    """Return a row for programs: full values, and the ends of intervals in columns."""
    numbers: dict[str, object] = {}
    for choice, cell in zip(shown.choices, row.cells, strict=True):
        numbers[choice.label] = cell.value
        numbers[f"{choice.label}_low"] = cell.low
        numbers[f"{choice.label}_high"] = cell.high
        numbers[f"{choice.label}_count"] = cell.count
    return {**_heads(row, shown), **numbers, **_tails(row, shown)}


def value_columns(shown: results.Results) -> list[str]:
    """Return the columns for programs; those of intervals only if rows have several runs."""
    ends = ("", "_low", "_high", "_count") if shown.has_repeats else ("",)
    return _columns(shown, [f"{choice.label}{end}" for choice in shown.choices for end in ends])
