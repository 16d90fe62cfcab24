"""The results of a sweep as rows. The JSON fields are a contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.cli import output
from orchestrator.cli.output import Column, parquet, terminal
from orchestrator.jobs import naming
from orchestrator.sweeps import parameters, result_notes, results
from orchestrator.text import formats

#: Left out on a narrow terminal, before metrics other than the first.
LEFT_OUT = ("point", "runs", "state", "job_id")


def print_results(shown: results.Results, form: str, path: Path | None) -> None:
    """Print results in a format, or replace the file `path`."""
    if form == "parquet":
        assert path is not None, "--format parquet requires --output"
        rows = [value_row(row, shown) for row in shown.rows]
        names = value_columns(shown)
        kinds = {name: parquet.kind_of(row.get(name) for row in rows) for name in names}
        # A column of texts may have numbers, such as the values "auto" and 8.
        texts = [name for name, kind in kinds.items() if kind == "string"]
        for row in rows:
            row |= {name: output.cell(row[name]) for name in texts if row[name] is not None}
        parquet.write(path, kinds, [rows])
        return
    with terminal.printing_to(path):
        if output.is_json(form):
            items = [item(row, shown) for row in shown.rows]
            output.print_rows("sweep_results", items, (), form)
        elif form in ("table", "markdown"):
            lines, columns = [line(row, shown) for row in shown.rows], line_columns(shown)
            if form == "table":
                output.print_rows("sweep_results", lines, table_columns(shown), form)
            else:
                text = formats.markdown_table(
                    columns, [[output.cell(row[name]) for name in columns] for row in lines]
                )
                notes = map(formats.markdown_text, result_notes.legend(shown))
                terminal.print_exactly("\n".join([text, *(f"- {note}" for note in notes), ""]))
        else:
            rows = [value_row(row, shown) for row in shown.rows]
            output.print_rows("sweep_results", rows, value_columns(shown), form)


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
                **output.fields_of(cell, ("value", "low", "high", "count", "unit")),
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
        choice.label: None if value is None else output.fields_of(value, ("value", "step", "epoch"))
        for choice, value in zip(shown.choices, run.measured, strict=True)
    }
    return {
        **output.fields_of(point, ("number", "name", "repeat", "settings")),
        **output.fields_of(point.job, ("state", "job_id", "row")),
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


def table_columns(shown: results.Results) -> list[Column]:
    """Return the columns of the table: parameters and the first metric are never left out."""
    further = [each.label for each in shown.choices[:0:-1]]
    drops = {name: number for number, name in enumerate((*LEFT_OUT, *further), start=1)}
    headings = [each.heading for each in shown.columns]
    return [
        Column(name, "text" if name in headings else "whole", drop=drops.get(name))
        for name in line_columns(shown)
    ]


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
