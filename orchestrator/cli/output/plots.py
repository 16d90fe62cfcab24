"""Plots of --plot: the format of the file, and the figures in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output
from orchestrator.cli.output import terminal

if TYPE_CHECKING:
    from orchestrator.reports.figures import Figure

#: Figures in one file; more would be too small to read.
MAX_FIGURES = 8


def check(path: Path) -> None:
    """Raise UsageError for an unknown suffix, and OrchestratorError without matplotlib."""
    from orchestrator.reports import drawing

    if _form(path) not in drawing.FORMATS:
        raise click.UsageError(f"--plot {path}: the file must end in .svg, .png or .pdf")
    drawing.require_matplotlib()


def save(path: Path, figures: Sequence[Figure], advice: str) -> None:
    """Draw figures into a file; UsageError with the advice if they are too many."""
    from orchestrator.reports import drawing

    names = ", ".join(figure.name for figure in figures)
    if len(figures) > MAX_FIGURES:
        raise click.UsageError(
            f"{len(figures)} figures do not fit into one file: {advice} among {names}"
        )
    content = drawing.draw(figures, _form(path))
    with terminal.replacing(path) as new:
        new.write_bytes(content)
    output.note(f"{path}: {names}")


def _form(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
