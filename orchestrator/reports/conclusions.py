"""Conclusions from a study: its fits, the largest efficient size, the fastest and the cheapest."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Sequence

from orchestrator import scaling
from orchestrator.reports import display, records
from orchestrator.scaling import regression

_HOUR_SECONDS = 3600.0
#: So many curves are listed after the fastest.
_MOST_SLOWER = 5
_LAWS = {"amdahl": "Amdahl's law", "usl": "the Universal Scalability Law"}


def best_fit(curve: records.Curve) -> scaling.Fit | None:
    """Return the USL, or Amdahl's law if there are too few sizes for it."""
    return curve.study.usl or curve.study.amdahl


def fit_lines(curve: records.Curve, unit: str) -> list[str]:
    """Return a sentence for each fit, and the serial fractions that need no fit."""
    lines = [
        _fit_line(fit, unit) for fit in (curve.study.amdahl, curve.study.usl) if fit is not None
    ]
    fractions = [
        f"{display.interval(row.point.serial_fraction)} at {row.point.size}"
        for row in curve.rows
        if row.point.serial_fraction is not None
    ]
    if fractions:
        lines.append(
            "Experimentally determined serial fraction (Karp-Flatt metric): "
            f"{'; '.join(fractions)} {display.plural(unit)}"
        )
    return lines


def _fit_line(fit: scaling.Fit, unit: str) -> str:
    gamma = fit.parameters["gamma"]
    interval = display.range_of(gamma)
    parts = [
        f"{display.number(gamma.value)} samples/s on {display.size(1, unit)}"
        + (f" (95 % CI {interval})" if interval else "")
    ]
    if fit.law == "amdahl":
        parts.append(f"serial fraction {_parameter(fit.parameters['alpha'])}")
    else:
        parts.append(f"contention {_parameter(fit.parameters['alpha'])}")
        parts.append(f"coherency {_parameter(fit.parameters['beta'])}")
        peak = fit.peak()
        if peak is not None:
            beyond = "" if peak <= fit.largest else ", beyond twice the largest measured size"
            parts.append(f"peak at {display.size(max(1, round(peak)), unit)}{beyond}")
    if fit.degrees > 0:
        parts.append(f"RMS deviation {display.share(fit.deviation)}")
    else:
        parts.append("no confidence intervals, because there are as many parameters as runs")
    law = _LAWS[fit.law]
    return f"{law[0].upper()}{law[1:]}: {'; '.join(parts)}"


def _parameter(estimate: scaling.Estimate) -> str:
    low, high = estimate.low, estimate.high
    if estimate.at_bound and low is not None and high is not None:
        end = f"< {display.number(high)}" if estimate.value <= 0.0 else f"> {display.number(low)}"
        return f"{estimate.value:.0f} (at its bound; one-sided 95 % CI: {end})"
    return display.interval(estimate)


def most_gpus(curve: records.Curve, efficiency: float, unit: str) -> str | None:
    """Return the largest size with this efficiency, in a sentence; None without a fit."""
    fit = best_fit(curve)
    if fit is None:
        return None
    most, is_end = fit.most_gpus(efficiency)
    largest = fit.sizes[-1]
    how = f"by {_LAWS[fit.law]}"
    if is_end:
        how += ", which is not extrapolated beyond twice the largest measured size"
    elif most > largest:
        how += f", extrapolated beyond the {largest} measured"
    up_to = f"{'at least ' if is_end else ''}{display.size(most, unit)}"
    sentence = f"Efficiency stays above {display.share(efficiency)} up to {up_to} ({how})"
    for row in curve.rows:
        # The fit has another baseline than the table, and may fit badly.
        point = row.point
        low, high = point.efficiency.low, point.efficiency.high
        low = point.efficiency.value if low is None else low
        high = point.efficiency.value if high is None else high
        if (high < efficiency) if point.size <= most else (low > efficiency):
            at = display.size(point.size, unit)
            measured = display.interval(point.efficiency, "share")
            return f"{sentence}; but {measured} was measured at {at}"
    return sentence


def fastest(curves: Sequence[records.Curve], unit: str) -> list[str]:
    """Return the fastest curve at each size that several have, and how close the others are."""
    by_size = collections.defaultdict(list)
    for curve in curves:
        for row in curve.rows:
            if not row.shared:
                by_size[row.point.size].append((curve.name, row))
    lines = []
    for size, rows in sorted(by_size.items()):
        (name, best), *slower = sorted(rows, key=lambda item: -item[1].point.throughput.value)
        if not slower:
            continue
        listed = [f"{other} {_relative(row, best)}" for other, row in slower[:_MOST_SLOWER]]
        if len(slower) > _MOST_SLOWER:
            listed.append(f"and {len(slower) - _MOST_SLOWER} slower")
        lines.append(
            f"{display.size(size, unit)}: {name} is fastest; throughput relative to it: "
            f"{', '.join(listed)}"
        )
    return lines


def _relative(row: records.Row, best: records.Row) -> str:
    compared = regression.compare(_throughputs(row), _throughputs(best))
    estimate = scaling.Estimate(value=compared.ratio, low=compared.low, high=compared.high)
    is_slower = compared.result is regression.Result.SLOWER or compared.low is None
    return display.interval(estimate, "share") + ("" if is_slower else ": no evidence")


def _throughputs(row: records.Row) -> list[float]:
    outliers = set(map(id, row.left_out))
    return [run.throughput for run in row.measurements if id(run) not in outliers]


def cheapest(curves: Sequence[records.Curve], epochs: int, within_seconds: float, unit: str) -> str:
    """Return the size that trains so many epochs in time for the fewest GPU-hours, in a sentence.

    Sizes by a fit are considered only if no measured size is fast enough.
    """
    target = f"{display.count(epochs, 'epoch')} within {display.seconds(within_seconds)}"
    timed = [
        (curve, row, epochs * row.epoch_seconds)
        for curve in curves
        for row in curve.rows
        if row.epoch_seconds is not None
    ]
    if not timed:
        return f"{target}: the time per epoch is unknown; set --samples-per-epoch"
    in_time = [item for item in timed if item[2] <= within_seconds]
    if not in_time:
        return _cheapest_by_fit(target, epochs, within_seconds, timed, unit)
    curve, row, took = min(in_time, key=lambda item: (item[2] * item[1].charged, item[2]))
    line = _cheapest_line(target, row.point.size, took, took * row.charged, curve, unit)
    throughput = row.point.throughput
    if throughput.low is not None:
        slowest = took * throughput.value / throughput.low
        if slowest > within_seconds:
            line += f"; up to {display.seconds(slowest)} by its confidence interval"
    return line


def _cheapest_by_fit(
    target: str,
    epochs: int,
    within_seconds: float,
    timed: Sequence[tuple[records.Curve, records.Row, float]],
    unit: str,
) -> str:
    fits = {}
    for curve, row, _ in timed:
        fit = best_fit(curve)
        if fit is not None and row.epoch_seconds is not None:
            samples = epochs * row.epoch_seconds * row.point.throughput.value
            fits[id(curve)] = (curve, fit, samples)
    if not fits:
        return f"{target}: no measured size is fast enough, and one size is too few for a fit"
    options = []
    for curve, fit, samples in fits.values():
        # Up to its peak the throughput grows and so does the cost: the first size is the cheapest.
        last = int(min(fit.largest, fit.peak() or fit.largest))
        sizes = range(fit.sizes[0], max(last, fit.sizes[0]) + 1)
        first = bisect.bisect(
            sizes, False, key=lambda size: samples / fit.throughput(size) <= within_seconds
        )
        if first < len(sizes):
            took = samples / fit.throughput(sizes[first])
            options.append((took * sizes[first], took, sizes[first], curve, _LAWS[fit.law]))
    if not options:
        return f"{target}: no size up to twice the largest measured is fast enough"
    cost, took, size, curve, law = min(options, key=lambda option: option[:2])
    line = _cheapest_line(target, size, took, cost, curve, unit)
    return f"{line} (by {law}, not measured)"


def _cheapest_line(
    target: str, size: int, took: float, cost: float, curve: records.Curve, unit: str
) -> str:
    of_curve = f" of {curve.name}" if curve.name else ""
    hours = {"gpus": "GPU-hours", "ranks": "rank-hours", "nodes": "node-hours"}[unit]
    return (
        f"{target}: cheapest with {display.size(size, unit)}{of_curve}: {display.seconds(took)} "
        f"and {display.number(cost / _HOUR_SECONDS)} {hours} of training"
    )
