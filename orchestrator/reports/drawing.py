"""Draw figures with matplotlib as SVG, PNG or PDF: the same bytes for the same numbers."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from typing import Any

from orchestrator import errors
from orchestrator.reports import figures
from orchestrator.text import escaping

FORMATS = ("svg", "png", "pdf")
#: Okabe and Ito's palette for colour-blind readers (jfly.uni-koeln.de/color).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GUIDE = "#888888"
#: With more sizes, their ticks overlap.
_MOST_TICKS = 12
_DATES = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


class NoMatplotlibError(errors.OrchestratorError):
    """Plots need matplotlib: run `pip install matplotlib`."""


class Drawer:
    """Draws with matplotlib; NoMatplotlibError if it is not installed."""

    def __init__(self) -> None:
        try:
            self._matplotlib: Any = importlib.import_module("matplotlib")
            self._figure: Any = importlib.import_module("matplotlib.figure")
        except ImportError as exc:
            raise NoMatplotlibError from exc

    def draw(self, stacked: Sequence[figures.Figure], form: str) -> bytes:
        """Return the figures, one above the other, as svg, png or pdf."""
        settings = {
            # The default salt is random: each file would have other IDs.
            "svg.hashsalt": stacked[0].name,
            # Text stays searchable and readable for screen readers.
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "font.size": 10.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
        with self._matplotlib.rc_context({**self._matplotlib.rcParamsDefault, **settings}):
            count = len(stacked)
            height = 4.2 if count == 1 else 3.0 * count
            canvas = self._figure.Figure(figsize=(6.4, height), layout="constrained")
            for index, figure in enumerate(stacked, start=1):
                self._fill(canvas.add_subplot(count, 1, index), figure)
            file = io.BytesIO()
            canvas.savefig(file, format=form, dpi=150, metadata=_DATES[form])
        return file.getvalue()

    def _fill(self, axes: Any, figure: figures.Figure) -> None:
        axes.set_title(_label(figure.title), loc="left", fontsize=11)
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(_label(figure.y_label))
        if figure.bar_labels:
            _draw_bars(axes, figure)
        else:
            for series in figure.series:
                _draw_series(axes, series)
            if figure.sizes:
                self._scale(axes, figure)
        if figure.is_share:
            axes.yaxis.set_major_formatter(
                importlib.import_module("matplotlib.ticker").PercentFormatter(1.0, decimals=0)
            )
        if figure.from_zero and not figure.is_log:
            axes.set_ylim(0.0, 1.1 * figure.top())
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        if len(figure.series) > 1:
            axes.legend(frameon=False, fontsize=8)

    def _scale(self, axes: Any, figure: figures.Figure) -> None:
        ticker = importlib.import_module("matplotlib.ticker")
        if len(figure.sizes) > 1:
            axes.set_xscale("log", base=2)
            if figure.is_log:
                axes.set_yscale("log", base=2)
                # 65,536 and 0.5, where "%.4g" writes 6.554e+04.
                axes.yaxis.set_major_formatter(
                    ticker.FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 1.0 else f"{y:.4g}")
                )
        if len(figure.sizes) <= _MOST_TICKS:
            axes.xaxis.set_major_locator(ticker.FixedLocator(list(figure.sizes)))
        axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
        axes.xaxis.set_minor_locator(ticker.NullLocator())


def _label(text: str) -> str:
    # A dollar sign starts a formula, and SVG allows no control characters.
    return escaping.lines(text).replace("$", r"\$")


def _draw_series(axes: Any, series: figures.Series) -> None:
    colour = _COLOURS[series.colour % len(_COLOURS)]
    label = _label(series.label)
    if series.kind == "points":
        below = [y - low for y, low in zip(series.y, series.low, strict=bool(series.low))]
        above = [high - y for y, high in zip(series.y, series.high, strict=bool(series.high))]
        axes.errorbar(
            series.x,
            series.y,
            yerr=[below, above] if series.low else None,
            fmt=_MARKERS[series.colour % len(_MARKERS)],
            color=colour,
            capsize=3,
            markersize=5,
            label=label,
        )
    elif series.kind == "guide":
        axes.plot(series.x, series.y, color=_GUIDE, linestyle=":", linewidth=1.2, label=label)
    else:
        style = "--" if series.kind == "dashed" else "-"
        axes.plot(series.x, series.y, color=colour, linestyle=style, linewidth=1.2, label=label)


def _draw_bars(axes: Any, figure: figures.Figure) -> None:
    bottom = [0.0] * len(figure.bar_labels)
    for series in figure.series:
        colour = _COLOURS[series.colour % len(_COLOURS)]
        label = _label(series.label)
        axes.bar(series.x, series.y, bottom=bottom, width=0.6, color=colour, label=label)
        bottom = [low + y for low, y in zip(bottom, series.y, strict=True)]
    labels = [_label(label) for label in figure.bar_labels]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
