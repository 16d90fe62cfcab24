"""Reports of scaling studies, made of measurements: tables, text, plots and pages.

Only `drawing` needs matplotlib.
"""

from __future__ import annotations

from orchestrator.reports.building import build_report
from orchestrator.reports.csv_input import MeasurementFileError, read_csv
from orchestrator.reports.records import Curve, Measurement, MeasurementSet, Report, Row, Targets
