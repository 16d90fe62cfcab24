"""The files of a report: its texts, its page, and its plots, each with its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.reports import documents, drawing, figures, page, records, tables
from orchestrator.text import formats


class Draws(Protocol):
    """What makes a picture of a figure: drawing.Drawer."""

    def draw(self, wanted: Sequence[figures.Figure], form: str) -> bytes:
        """Return the figures, one above the other, as svg, png or pdf."""
        ...


def contents(
    report: records.Report,
    wishes: records.Targets,
    names: Sequence[str],
    drawer: Draws | None,
) -> dict[str, bytes]:
    """Return the files by name; `names`: only these columns."""
    columns = tables.chosen(report, names)
    texts = {
        "report.md": documents.markdown(report, wishes, columns),
        "report.tex": documents.latex(report, wishes, columns),
        "report.csv": _csv(tables.values(report, tables.everything(report, names))),
        "report.json": _json(documents.items(report, wishes, names)),
    }
    made = {name: text.encode() for name, text in texts.items()}
    drawings = []
    for figure in figures.figures(report) if drawer is not None else ():
        assert drawer is not None
        for form in drawing.FORMATS:
            made[f"{figure.name}.{form}"] = drawer.draw([figure], form)
        made[f"{figure.name}.csv"] = figures.as_csv(figure).encode()
        drawings.append((figure.name, made[f"{figure.name}.svg"].decode()))
    made["report.html"] = page.page(report, wishes, columns, drawings).encode()
    return made


def _csv(rows: Sequence[dict[str, object]]) -> str:
    values = [["" if value is None else value for value in row.values()] for row in rows]
    return formats.csv_text([list(rows[0]), *values])


def _json(items: Sequence[dict[str, object]]) -> str:
    return formats.json_text(items, indent=2, allow_nan=True) + "\n"
