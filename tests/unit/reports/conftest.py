"""Reports of the files in tests/data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import reports


@pytest.fixture
def report_of(checkout: Path) -> Callable[..., reports.Report]:
    def made(name: str, **options: int | str) -> reports.Report:
        figures = reports.read_csv((checkout / f"tests/data/{name}.csv").read_text(), f"{name}.csv")
        return reports.build_report(name, figures.measurements, unit=figures.unit, **options)

    return made
