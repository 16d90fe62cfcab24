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
_MAX_TICKS = 12
_DATES = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


def draw(stacked: Sequence[figures.Figure], form: str) -> bytes:
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
    matplotlib = _module("matplotlib")
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **settings}):
        count = len(stacked)
        height = 4.2 if count == 1 else 3.0 * count
        canvas = _module("matplotlib.figure").Figure(figsize=(6.4, height), layout="constrained")
        for index, figure in enumerate(stacked, start=1):
            _fill(canvas.add_subplot(count, 1, index), figure)
        file = io.BytesIO()
        canvas.savefig(file, format=form, dpi=150, metadata=_DATES[form])
    return file.getvalue()


def require_matplotlib() -> None:
    _module("matplotlib.figure")


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        message = "Plots need matplotlib: run `pip install matplotlib`."
        raise errors.OrchestratorError(message) from exc


def _fill(axes: Any, figure: figures.Figure) -> None:
    axes.set_title(_label(figure.title), loc="left", fontsize=11)
    axes.set_xlabel(_label(figure.x_label))
    axes.set_ylabel(_label(figure.y_label))
    bottom = [0.0] * len(figure.x_labels)
    for series in figure.series:
        if series.kind == "bars":
            bottom = _draw_bars(axes, series, bottom)
        else:
            _draw_series(axes, series)
    if figure.x_labels:
        labels = [_label(label) for label in figure.x_labels]
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
    elif figure.sizes:
        _scale(axes, figure)
    elif figure.is_log_x:
        axes.set_xscale("log")
    if figure.ticks:
        axes.set_xticks(figure.ticks, [f"{tick:g}" for tick in figure.ticks], minor=False)
        axes.xaxis.set_minor_locator(_module("matplotlib.ticker").NullLocator())
    if figure.is_share:
        ticker = _module("matplotlib.ticker")
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
    if figure.from_zero and not figure.is_log:
        axes.set_ylim(0.0, 1.1 * figure.top())
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    if len(figure.series) > 1:
        axes.legend(frameon=False, fontsize=8)


def _scale(axes: Any, figure: figures.Figure) -> None:
    ticker = _module("matplotlib.ticker")
    if len(figure.sizes) > 1:
        axes.set_xscale("log", base=2)
        if figure.is_log:
            axes.set_yscale("log", base=2)
            # 65,536 and 0.5, where "%.4g" writes 6.554e+04.
            axes.yaxis.set_major_formatter(
                ticker.FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 1.0 else f"{y:.4g}")
            )
    if len(figure.sizes) <= _MAX_TICKS:
        axes.xaxis.set_major_locator(ticker.FixedLocator(list(figure.sizes)))
    axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _label(text: str) -> str:
    # A dollar sign starts a formula, and SVG allows no control characters.
    return escaping.lines(text).replace("$", r"\$")


def _draw_series(axes: Any, series: figures.Series) -> None:
    style: dict[str, Any] = {
        "color": _COLOURS[series.colour % len(_COLOURS)],
        "label": _label(series.label),
    }
    if series.kind == "points":
        ends = zip(series.y, series.low, series.high, strict=True) if series.low else ()
        below_and_above = [(y - low, high - y) for y, low, high in ends]
        style |= {
            "yerr": [*zip(*below_and_above, strict=True)] or None,
            "fmt": _MARKERS[series.colour % len(_MARKERS)],
        }
        axes.errorbar(series.x, series.y, capsize=3, markersize=5, **style)
        return
    if series.kind == "guide":
        style["color"] = _GUIDE
    linestyle = {"guide": ":", "dashed": "--"}.get(series.kind, "-")
    axes.plot(series.x, series.y, linestyle=linestyle, linewidth=1.2, **style)


def _draw_bars(axes: Any, series: figures.Series, bottom: Sequence[float]) -> list[float]:
    """Stack bars onto others; return the heights of their tops."""
    colour = _COLOURS[series.colour % len(_COLOURS)]
    label = _label(series.label)
    axes.bar(series.x, series.y, bottom=bottom, width=0.6, color=colour, label=label)
    return [low + y for low, y in zip(bottom, series.y, strict=True)]
