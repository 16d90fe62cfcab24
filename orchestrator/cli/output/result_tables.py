"""Print the results of a sweep."""

from __future__ import annotations

from pathlib import Path

from orchestrator.cli import output
from orchestrator.cli.output import Column, parquet, terminal
from orchestrator.rows import result_rows, row_values
from orchestrator.sweeps import result_notes, results
from orchestrator.text import formats

#: Left out on a narrow terminal, before metrics other than the first.
LEFT_OUT = ("point", "runs", "state", "job_id")


def print_results(shown: results.Results, form: str, path: Path | None) -> None:
    """Print results in a format, or replace the file `path`."""
    if form == "parquet":
        assert path is not None, "--format parquet requires --output"
        rows = [result_rows.value_row(row, shown) for row in shown.rows]
        names = result_rows.value_columns(shown)
        kinds = {name: parquet.kind_of(row.get(name) for row in rows) for name in names}
        # A column of texts may have numbers, such as the values "auto" and 8.
        texts = [name for name, kind in kinds.items() if kind == "string"]
        for row in rows:
            row |= {name: row_values.cell(row[name]) for name in texts if row[name] is not None}
        parquet.write(path, kinds, [rows])
        return
    with terminal.printing_to(path):
        if output.is_json(form):
            items = [result_rows.item(row, shown) for row in shown.rows]
            output.print_rows("sweep_results", items, (), form)
        elif form in ("table", "markdown"):
            lines, columns = (
                [result_rows.line(row, shown) for row in shown.rows],
                result_rows.line_columns(shown),
            )
            if form == "table":
                output.print_rows("sweep_results", lines, table_columns(shown), form)
            else:
                text = formats.markdown_table(
                    columns, [[row_values.cell(row[name]) for name in columns] for row in lines]
                )
                notes = map(formats.markdown_text, result_notes.legend(shown))
                terminal.print_exactly("\n".join([text, *(f"- {note}" for note in notes), ""]))
        else:
            rows = [result_rows.value_row(row, shown) for row in shown.rows]
            output.print_rows("sweep_results", rows, result_rows.value_columns(shown), form)


def table_columns(shown: results.Results) -> list[Column]:
    """Return the columns of the table: parameters and the first metric are never left out."""
    further = [each.label for each in shown.choices[:0:-1]]
    drops = {name: number for number, name in enumerate((*LEFT_OUT, *further), start=1)}
    headings = [each.heading for each in shown.columns]
    return [
        Column(name, "text" if name in headings else "whole", drop=drops.get(name))
        for name in result_rows.line_columns(shown)
    ]
