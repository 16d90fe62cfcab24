"""A report as text, Markdown, LaTeX, HTML and JSON, and the files of a report folder."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from orchestrator import scaling
from orchestrator.reports import conclusions, display, drawing, figures, records, tables
from orchestrator.text import escaping, formats


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

    def row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(map(_markdown_text, cells))} |"

    titles = [tables.title(column, report) for column in columns]
    parts = [f"# {_markdown_text(report.title)}", "", row(titles), "|" + "---|" * len(titles)]
    parts += [row(cells.values()) for cells in tables.texts(report, columns)]
    for title, lines in sentences(report, targets):
        parts += ["", f"## {_markdown_text(title)}", ""]
        parts += [f"- {_markdown_text(line)}" for line in lines]
    return "\n".join(parts) + "\n"


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", _plain(text))


def _plain(text: str) -> str:
    return escaping.one_line(" ".join(text.split()))


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_TEXT_COLUMNS = ("configuration", "curve", "source")


def latex(
    report: records.Report, targets: records.Targets, columns: Sequence[tables.Column]
) -> str:
    """Return the table as LaTeX that needs no package; the sentences are comments above it."""

    def row(cells: Iterable[str]) -> str:
        texts = ("".join(_LATEX.get(mark, mark) for mark in _plain(cell)) for cell in cells)
        return " & ".join(texts) + r" \\"

    titles = [tables.title(column, report) for column in columns]
    alignment = "".join("l" if title in _TEXT_COLUMNS else "r" for title in titles)
    return "\n".join(
        [
            f"% {_plain(report.title)}",
            *(
                f"% {title}: {_plain(line)}"
                for title, lines in sentences(report, targets)
                for line in lines
            ),
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\hline",
            row(title.replace("_", " ") for title in titles),
            r"\hline",
            *(row(cells.values()) for cells in tables.texts(report, columns)),
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


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


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd;
  white-space: nowrap; }
th { border-bottom: 2px solid #888; } .text { text-align: left; }
.warnings { border-left: 4px solid #d55e00; padding-left: 1rem; }
figure { display: inline-block; margin: 1rem 1rem 0 0; } svg { max-width: 100%; height: auto; }
""".strip()


def page(
    report: records.Report,
    targets: records.Targets,
    columns: Sequence[tables.Column],
    drawings: Mapping[str, str],
) -> str:
    """Return one HTML file without scripts and links; `drawings`: SVG files by name."""

    def row(tag: str, cells: Mapping[str, str]) -> str:
        return "".join(
            f"<{tag}{_TEXT_CLASS if name in _TEXT_COLUMNS else ''}>{_html_text(cell)}</{tag}>"
            for name, cell in cells.items()
        )

    headings = {
        title: title.replace("_", " ")
        for title in (tables.title(column, report) for column in columns)
    }
    sections = sentences(report, targets)
    warnings = [section for section in sections if section[0] == "Warnings"]
    others = [section for section in sections if section[0] != "Warnings"]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_html_text(report.title)}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f"<h1>{_html_text(report.title)}</h1>",
            '<div class="wide"><table>',
            f"<tr>{row('th', headings)}</tr>",
            *(f"<tr>{row('td', cells)}</tr>" for cells in tables.texts(report, columns)),
            "</table></div>",
            *_html_lists(warnings, "warnings"),
            *(f"<figure>{_inline(svg, f'{name}-')}</figure>" for name, svg in drawings.items()),
            *_html_lists(others, "notes"),
            "</html>",
            "",
        ]
    )


_TEXT_CLASS = ' class="text"'


def _html_text(text: str) -> str:
    return html.escape(escaping.one_line(text))


def _html_lists(sections: Sequence[tuple[str, Sequence[str]]], kind: str) -> list[str]:
    return [
        f'<h2>{_html_text(title)}</h2>\n<ul class="{kind}">'
        f"{''.join(f'<li>{_html_text(line)}</li>' for line in lines)}</ul>"
        for title, lines in sections
    ]


def _inline(svg: str, prefix: str) -> str:
    """Return the svg element with IDs that are unique in the page."""
    element = svg[svg.index("<svg") :].strip()
    # Its addresses of a licence and a format are not links, but look like some.
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{prefix}', element)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", element)


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
