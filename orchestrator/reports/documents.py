"""A report as text, Markdown, LaTeX, HTML and JSON, and the files of a report folder."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import jinja2

from orchestrator import scaling
from orchestrator.reports import conclusions, display, drawing, figures, records, tables
from orchestrator.text import escaping, formats

_TEMPLATES = Path(__file__).parent / "templates"


def sentences(report: records.Report, targets: records.Targets) -> list[tuple[str, list[str]]]:
    """Return the text below the table: titles, each with its sentences."""
    curves, unit = report.curves, report.unit
    sections: list[tuple[str, Sequence[str]]] = []
    if any(curve.name != display.attributes(curve.attributes) for curve in curves):
        names = [f"{curve.name}: {display.attributes(curve.attributes)}" for curve in curves]
        sections.append(("Curves", names))
    sections.append(("Warnings", report.warnings))
    for curve in curves:
        lines = conclusions.fit_lines(curve, unit)
        most = conclusions.most_gpus(curve, targets.efficiency, unit)
        title = f"Fits of {curve.name}" if len(curves) > 1 else "Fits"
        sections.append((title, [*lines, most] if most else lines))
    sections.append(("Fastest", conclusions.fastest(curves, unit)))
    if in_time := _cheapest(report, targets):
        sections.append(("In time", [in_time]))
    common = [f"same in all runs: {display.attributes(report.common)}"] if report.common else []
    sections.append(("Method", [*report.notes, *common]))
    return [(title, list(lines)) for title, lines in sections if lines]


def _cheapest(report: records.Report, targets: records.Targets) -> str:
    if targets.epochs is None or targets.within_seconds is None:
        return ""
    return conclusions.cheapest(report.curves, targets.epochs, targets.within_seconds, report.unit)


def markdown(
    report: records.Report, targets: records.Targets, columns: Sequence[tables.Column]
) -> str:
    """Return the report as Markdown."""
    return _render("report.md.j2", report, targets, columns, escape=_markdown_text)


def latex(
    report: records.Report, targets: records.Targets, columns: Sequence[tables.Column]
) -> str:
    """Return the table as LaTeX that needs no package; the sentences are comments above it."""
    return _render("report.tex.j2", report, targets, columns)


def page(
    report: records.Report,
    targets: records.Targets,
    columns: Sequence[tables.Column],
    drawings: Mapping[str, str],
) -> str:
    """Return one HTML file without scripts and links; `drawings`: SVG files by name."""
    inline = [_inline(svg, f"{name}-") for name, svg in drawings.items()]
    return _render("report.html.j2", report, targets, columns, drawings=inline)


def _plain(text: str) -> str:
    return escaping.one_line(" ".join(text.split()))


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", _plain(text))


_LATEX = {
    **{mark: f"\\{mark}" for mark in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)


def _render(
    template: str,
    report: records.Report,
    targets: records.Targets,
    columns: Sequence[tables.Column],
    *,
    escape: Callable[[str], str] = _plain,
    drawings: Sequence[str] = (),
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=template == "report.html.j2",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["latex"] = _latex_text
    return environment.get_template(template).render(
        title=escape(report.title),
        columns=[escape(tables.title(column, report)) for column in columns],
        rows=[
            {name: escape(cell) for name, cell in row.items()}
            for row in tables.texts(report, columns)
        ],
        sections=[
            (title, [escape(line) for line in lines]) for title, lines in sentences(report, targets)
        ],
        text_columns=("configuration", "curve", "source"),
        drawings=drawings,
    )


def _inline(svg: str, prefix: str) -> str:
    """Return the svg element with IDs that are unique in the page."""
    element = svg[svg.index("<svg") :].strip()
    # Its addresses of a licence and a format are not links, but look like some.
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{prefix}', element)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", element)


def items(
    report: records.Report, targets: records.Targets, names: Sequence[str] = ()
) -> list[dict[str, object]]:
    """Return the report for JSON, an item per curve; `names`: only these columns."""
    columns = tables.everything(report, names)
    in_time = _cheapest(report, targets)
    return [
        {
            "title": report.title,
            "curve": curve.name,
            "attributes": dict(curve.attributes),
            "common": dict(report.common),
            "unit": report.unit,
            "points": tables.values(dataclasses.replace(report, curves=(curve,)), columns),
            "deviation": curve.study.deviation,
            "amdahl": _fit(curve.study.amdahl),
            "usl": _fit(curve.study.usl),
            "most": conclusions.most_gpus(curve, targets.efficiency, report.unit),
            "warnings": list(report.warnings),
            "notes": list(report.notes),
            **({"in_time": in_time} if in_time else {}),
        }
        for curve in report.curves
    ]


def _fit(fit: scaling.Fit | None) -> Mapping[str, object] | None:
    if fit is None:
        return None
    parameters = fit.parameters.items()
    return {
        "parameters": {name: dataclasses.asdict(estimate) for name, estimate in parameters},
        "deviation": fit.deviation if fit.degrees > 0 else None,
        "degrees": fit.degrees,
        "sizes": list(fit.sizes),
        "reach": fit.largest,
    }


class Draws(Protocol):
    """drawing.Drawer, or a part of it in tests."""

    def draw(self, stacked: Sequence[figures.Figure], form: str) -> bytes: ...


def contents(
    report: records.Report,
    targets: records.Targets,
    names: Sequence[str],
    drawer: Draws | None,
) -> dict[str, bytes]:
    """Return the files of a report folder; `names`: only these columns."""
    columns = tables.chosen(report, names)
    rows = tables.values(report, tables.everything(report, names))
    cells = [["" if value is None else value for value in row.values()] for row in rows]
    json_text = formats.json_text(items(report, targets, names), indent=2, allow_nan=True)
    files = {
        "report.md": markdown(report, targets, columns).encode(),
        "report.tex": latex(report, targets, columns).encode(),
        "report.csv": formats.csv_text([list(rows[0]), *cells]).encode(),
        "report.json": f"{json_text}\n".encode(),
    }
    drawings = {}
    for figure in figures.figures(report) if drawer is not None else ():
        assert drawer is not None
        for form in drawing.FORMATS:
            files[f"{figure.name}.{form}"] = drawer.draw([figure], form)
        files[f"{figure.name}.csv"] = figures.as_csv(figure).encode()
        drawings[figure.name] = files[f"{figure.name}.svg"].decode()
    files["report.html"] = page(report, targets, columns, drawings).encode()
    return files
