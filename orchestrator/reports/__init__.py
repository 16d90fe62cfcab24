"""Reports: what the jobs of a scaling study showed, as tables, sentences, plots and pages. Pure.

`reading` makes measurements of a CSV file, `building` makes the report of measurements; `tables`,
`documents`, `figures` and `page` show it. Only `drawing` needs matplotlib.
"""

from __future__ import annotations

from orchestrator.reports.building import report
from orchestrator.reports.reading import FiguresError, read
from orchestrator.reports.records import Curve, Figures, Measurement, Report, Row, Wishes

__all__ = [
    "Curve",
    "Figures",
    "FiguresError",
    "Measurement",
    "Report",
    "Row",
    "Wishes",
    "read",
    "report",
]
