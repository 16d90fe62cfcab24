"""A report as text: its sentences, Markdown, LaTeX, and the records of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from orchestrator import scaling
from orchestrator.reports import conclusions, display, records, tables
from orchestrator.text import escaping


def sentences(report: records.Report, wishes: records.Targets) -> list[tuple[str, list[str]]]:
    """Return what is said below the table: titles, each with its sentences."""
    said: list[tuple[str, list[str]]] = []
    several = len(report.curves) > 1
    if any(curve.name != display.attributes(curve.attributes) for curve in report.curves):
        told = [f"{curve.name}: {display.attributes(curve.attributes)}" for curve in report.curves]
        said.append(("Curves", told))
    said.append(("Warnings", list(report.warnings)))
    for curve in report.curves:
        found = conclusions.fit_lines(curve, report.unit)
        most = conclusions.most_gpus(curve, wishes.efficiency, report.unit)
        found += [most] if most else []
        said.append((f"Fits of {curve.name}" if several else "Fits", found))
    said.append(("Fastest", conclusions.fastest(report.curves, report.unit)))
    if wishes.epochs is not None and wishes.within_seconds is not None:
        line = conclusions.cheapest(
            report.curves, wishes.epochs, wishes.within_seconds, report.unit
        )
        said.append(("In time", [line]))
    notes = list(report.notes)
    if report.common:
        notes.append(f"the same in all: {display.attributes(report.common)}")
    said.append(("How", notes))
    return [(title, found) for title, found in said if found]


def markdown(
    report: records.Report, wishes: records.Targets, columns: Sequence[tables.Column]
) -> str:
    """Return the report as Markdown."""
    titles = [tables.title(column, report) for column in columns]
    parts = [f"# {_marked(report.title)}", ""]
    parts.append(_marked_row(titles))
    parts.append("|" + "---|" * len(titles))
    parts += [_marked_row([row[name] for name in titles]) for row in tables.texts(report, columns)]
    for title, found in sentences(report, wishes):
        parts += ["", f"## {_marked(title)}", ""]
        parts += [f"- {_marked(sentence)}" for sentence in found]
    return "\n".join(parts) + "\n"


def _marked_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_marked, cells))} |"


def _marked(text: str) -> str:
    """Return the text with what Markdown would take for its own escaped."""
    text = _plain(text)
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return text


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


def latex(report: records.Report, wishes: records.Targets, columns: Sequence[tables.Column]) -> str:
    """Return the table as LaTeX, without any package; the sentences stand above it as comments."""
    titles = [tables.title(column, report) for column in columns]
    head = [f"% {_plain(report.title)}"]
    for title, found in sentences(report, wishes):
        head += [f"% {title}: {_plain(sentence)}" for sentence in found]
    body = [
        " & ".join(_tex(row[name]) for name in titles) + r" \\"
        for row in tables.texts(report, columns)
    ]
    return "\n".join(
        [
            *head,
            r"\begin{tabular}{" + "".join(_side(name) for name in titles) + "}",
            r"\hline",
            " & ".join(_tex(name.replace("_", " ")) for name in titles) + r" \\",
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            "",
        ]
    )


def _side(title: str) -> str:
    return "l" if title in ("configuration", "curve", "source") else "r"


def _tex(text: str) -> str:
    return "".join(_LATEX.get(one, one) for one in _plain(text))


def items(
    report: records.Report, wishes: records.Targets, names: Sequence[str] = ()
) -> list[dict[str, object]]:
    """Return the report for JSON: an item a curve; `names`: only these columns."""
    columns = tables.everything(report, names)
    found: list[dict[str, object]] = []
    for curve in report.curves:
        alone = dataclasses.replace(report, curves=(curve,))
        most = conclusions.most_gpus(curve, wishes.efficiency, report.unit)
        found.append(
            {
                "title": report.title,
                "curve": curve.name,
                "attributes": dict(curve.attributes),
                "common": dict(report.common),
                "unit": report.unit,
                "points": tables.values(alone, columns),
                "deviation": curve.study.deviation,
                "amdahl": _fit(curve.study.amdahl),
                "usl": _fit(curve.study.usl),
                "most": most,
                "warnings": list(report.warnings),
                "notes": list(report.notes),
            }
        )
    if wishes.epochs is not None and wishes.within_seconds is not None:
        line = conclusions.cheapest(
            report.curves, wishes.epochs, wishes.within_seconds, report.unit
        )
        for item in found:
            item["in_time"] = line
    return found


def _fit(fit: scaling.Fit | None) -> Mapping[str, object] | None:
    if fit is None:
        return None
    return {
        "parameters": {
            name: dataclasses.asdict(estimate) for name, estimate in fit.parameters.items()
        },
        "deviation": fit.deviation if fit.degrees > 0 else None,
        "degrees": fit.degrees,
        "sizes": list(fit.sizes),
        "reach": scaling.fits.REACH * fit.sizes[-1],
    }
