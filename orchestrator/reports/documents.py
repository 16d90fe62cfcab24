"""A report as text, Markdown, LaTeX, HTML and JSON, and the files of a report folder."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jinja2

from orchestrator import scaling
from orchestrator.reports import conclusions, display, drawing, figures, records, tables
from orchestrator.text import escaping, formats

_TEMPLATES = Path(__file__).parent / "templates"

#: Returns figures, one above the other, as drawing.draw does.
Draw = Callable[[Sequence[figures.Figure], str], bytes]


def sentences(report: records.Report, targets: records.Targets) -> list[tuple[str, list[str]]]:
    """Return the text below the table: titles, each with its sentences."""
    curves = report.curves
    sections: list[tuple[str, Sequence[str]]] = []
    if any(curve.name != display.attributes(curve.attributes) for curve in curves):
        names = [f"{curve.name}: {display.attributes(curve.attributes)}" for curve in curves]
        sections.append(("Curves", names))
    sections.append(("Warnings", report.warnings))
    for curve in curves:
        lines = conclusions.fit_lines(curve)
        most = conclusions.most_gpus(curve, targets.efficiency)
        title = f"Fits of {curve.name}" if len(curves) > 1 else "Fits"
        sections.append((title, [*lines, most] if most else lines))
    sections.append(("Fastest", conclusions.fastest(curves)))
    sections.append(("In time", conclusions.cheapest(report, targets)))
    common = [f"same in all runs: {display.attributes(report.common)}"] if report.common else []
    sections.append(("Method", [*report.notes, *common]))
    return [(title, list(lines)) for title, lines in sections if lines]


def _plain(text: str) -> str:
    return escaping.one_line(" ".join(text.split()))


_LATEX = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "{}$&#%_"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def render(
    form: str,
    report: records.Report,
    targets: records.Targets,
    names: Sequence[str] = (),
    drawings: Mapping[str, str] | None = None,
) -> str:
    """Return a report as Markdown, LaTeX or HTML: `md`, `tex`, `html`; `names`: of the columns.

    LaTeX needs no package; the sentences are comments above the table. HTML is one file without
    scripts and links; `drawings`: SVG files by name.
    """
    escape = formats.markdown_text if form == "md" else _plain
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=form == "html",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["latex"] = lambda text: text.translate(_LATEX)
    rows = [
        {escape(heading): escape(cell) for heading, cell in row.items()}
        for row in tables.texts(report, names)
    ]
    sections = sentences(report, targets)
    return environment.get_template(f"report.{form}.j2").render(
        title=escape(report.title),
        columns=list(rows[0]),
        rows=rows,
        sections=[(title, [escape(line) for line in lines]) for title, lines in sections],
        text_columns=("configuration", "curve", "source"),
        drawings=[_inline(svg, f"{name}-") for name, svg in (drawings or {}).items()],
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
    names = names or tables.filled(report)
    in_time = conclusions.cheapest(report, targets)
    return [
        {
            "title": report.title,
            "curve": curve.name,
            "attributes": dict(curve.attributes),
            "common": dict(report.common),
            "unit": report.unit,
            "points": tables.values(dataclasses.replace(report, curves=(curve,)), names),
            "deviation": curve.study.deviation,
            "baseline_is_valid": curve.study.baseline_is_valid,
            "amdahl": _fit(curve.study.amdahl),
            "usl": _fit(curve.study.usl),
            "most": conclusions.most_gpus(curve, targets.efficiency),
            "warnings": list(report.warnings),
            "notes": list(report.notes),
            **({"in_time": in_time[0]} if in_time else {}),
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
        "lack_of_fit_p": fit.lack_of_fit,
        "is_rejected": bool(fit.rejected),
        "sizes": list(fit.sizes),
        "reach": fit.largest,
    }


def contents(
    report: records.Report, targets: records.Targets, names: Sequence[str], draw: Draw | None
) -> dict[str, bytes]:
    """Return the files of a report folder; `names`: only these columns. No plots without `draw`."""
    rows = tables.values(report, names)
    cells = [["" if value is None else value for value in row.values()] for row in rows]
    json_text = formats.json_text(items(report, targets, names), indent=2, allow_nan=True)
    files = {
        "report.md": render("md", report, targets, names).encode(),
        "report.tex": render("tex", report, targets, names).encode(),
        "report.csv": formats.csv_text([list(rows[0]), *cells]).encode(),
        "report.json": f"{json_text}\n".encode(),
    }
    drawings = {}
    for figure in figures.figures(report) if draw is not None else ():
        assert draw is not None
        for form in drawing.FORMATS:
            files[f"{figure.name}.{form}"] = draw([figure], form)
        files[f"{figure.name}.csv"] = figures.as_csv(figure).encode()
        drawings[figure.name] = files[f"{figure.name}.svg"].decode()
    files["report.html"] = render("html", report, targets, names, drawings).encode()
    return files
