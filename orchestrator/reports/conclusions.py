"""Conclusions from a study: its fits, the largest efficient size, the fastest and the cheapest."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Sequence

from orchestrator import scaling
from orchestrator.reports import display, records
from orchestrator.scaling import regression
from orchestrator.text.nouns import count

#: So many curves are listed after the fastest.
_MAX_SLOWER = 5
_LAWS = {"amdahl": "Amdahl's law", "usl": "the Universal Scalability Law"}


def best_fit(curve: records.Curve) -> scaling.Fit | None:
    """Return the USL, or Amdahl's law if there are too few sizes for it."""
    return curve.study.usl or curve.study.amdahl


def fit_lines(curve: records.Curve) -> list[str]:
    """Return a sentence for each fit, and the serial fractions that need no fit."""
    fits = (curve.study.amdahl, curve.study.usl)
    lines = [_fit_line(fit, curve.unit) for fit in fits if fit is not None]
    fractions = [
        f"{display.interval(point.serial_fraction)} at {point.size}"
        for point in curve.study.points
        if point.serial_fraction is not None
    ]
    if fractions:
        lines.append(
            "Experimentally determined serial fraction (Karp-Flatt metric): "
            f"{'; '.join(fractions)} {display.plural(curve.unit)}"
        )
    return lines


def _fit_line(fit: scaling.Fit, unit: str) -> str:
    gamma, alpha = fit.parameters["gamma"], _parameter(fit.parameters["alpha"])
    interval = display.range_of(gamma)
    parts = [
        f"{display.number(gamma.value)} samples/s on {display.size(1, unit)}"
        + (f" (95 % CI {interval})" if interval else "")
    ]
    if fit.law == "amdahl":
        parts.append(f"serial fraction {alpha}")
    else:
        parts += [f"contention {alpha}", f"coherency {_parameter(fit.parameters['beta'])}"]
        if (peak := fit.peak()) is not None:
            beyond = "" if peak <= fit.largest else ", beyond twice the largest measured size"
            parts.append(f"peak at {display.size(max(1, round(peak)), unit)}{beyond}")
    if fit.degrees > 0:
        parts.append(f"RMS deviation {display.share(fit.deviation)}")
    else:
        parts.append("no confidence intervals, because there are as many parameters as runs")
    if reason := fit.rejected:
        parts[-1] = f"rejected, because it does not describe the runs ({reason})"
    return f"{_capitalised(_LAWS[fit.law])}: {'; '.join(parts)}"


def _parameter(estimate: scaling.Estimate) -> str:
    low, high = estimate.low, estimate.high
    if estimate.at_bound and low is not None and high is not None:
        end = f"< {display.number(high)}" if estimate.value <= 0.0 else f"> {display.number(low)}"
        return f"{estimate.value:.0f} (at its bound; one-sided 95 % CI: {end})"
    return display.interval(estimate)


def most_gpus(curve: records.Curve, efficiency: float) -> str | None:
    """Return the largest size with this efficiency, in a sentence; None without a fit.

    Only the measured sizes count if the fit does not describe the runs, and nothing is concluded
    from an invalid baseline.
    """
    fit = best_fit(curve)
    if fit is None:
        return None
    target = display.share(efficiency)
    if not curve.study.baseline_is_valid:
        base = display.size(curve.study.points[0].size, curve.unit)
        return f"No conclusion about the efficiency: the runs with {base} are not a valid baseline"
    most, is_end = fit.most_gpus(efficiency)
    if reason := fit.rejected or _contradiction(curve, efficiency, most):
        name = _capitalised(_LAWS[fit.law])
        reason = f"{name} is not used: {reason}"
        sizes = [point.size for point in curve.study.points]
        low = [point.efficiency.value < efficiency for point in curve.study.points]
        if True not in low:
            at = display.size(sizes[-1], curve.unit)
            return (
                f"Measured efficiency is at least {target} up to {at}, the largest size. {reason}"
            )
        last = display.size(sizes[low.index(True) - 1], curve.unit)
        first = display.size(sizes[low.index(True)], curve.unit)
        return (
            f"Measured efficiency is at least {target} up to {last}, but not at {first}. {reason}"
        )
    largest = fit.sizes[-1]
    how = f"by {_LAWS[fit.law]}"
    if is_end:
        how += ", which is not extrapolated beyond twice the largest measured size"
    elif most > largest:
        how += f", extrapolated beyond the {largest} measured"
    up_to = f"{'at least ' if is_end else ''}{display.size(most, curve.unit)}"
    return f"Efficiency stays above {target} up to {up_to} ({how})"


def _contradiction(curve: records.Curve, efficiency: float, most: int) -> str:
    """Return which measured efficiency shows that `most` is not the largest size; "": none does."""
    for point in curve.study.points:
        # The fit has another baseline than the table.
        measured = point.efficiency
        low = measured.value if measured.low is None else measured.low
        high = measured.value if measured.high is None else measured.high
        if (high < efficiency) if point.size <= most else (low > efficiency):
            return (
                f"its limit is {display.size(most, curve.unit)}, but "
                f"{display.interval(measured, 'share')} was measured at {point.size}"
            )
    return ""


def _capitalised(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def fastest(curves: Sequence[records.Curve]) -> list[str]:
    """Return the fastest curve at each size that several have, and how close the others are."""
    by_size = collections.defaultdict(list)
    for curve in curves:
        for row in curve.rows:
            if not row.shared:
                by_size[row.point.size].append(row)
    lines = []
    for size, rows in sorted(by_size.items()):
        best, *slower = sorted(rows, key=lambda row: -row.point.throughput.value)
        if not slower:
            continue
        listed = [f"{row.curve} {_relative(row, best)}" for row in slower[:_MAX_SLOWER]]
        if len(slower) > _MAX_SLOWER:
            listed.append(f"and {len(slower) - _MAX_SLOWER} slower")
        lines.append(
            f"{display.size(size, best.unit)}: {best.curve} is fastest; throughput relative to "
            f"it: {', '.join(listed)}"
        )
    return lines


def _relative(row: records.Row, best: records.Row) -> str:
    compared = regression.compare(_throughputs(row), _throughputs(best))
    estimate = scaling.Estimate(value=compared.ratio, low=compared.low, high=compared.high)
    is_slower = compared.result == "slower" or compared.low is None
    return display.interval(estimate, "share") + ("" if is_slower else ": no evidence")


def _throughputs(row: records.Row) -> list[float]:
    outliers = set(map(id, row.left_out))
    return [run.throughput for run in row.measurements if id(run) not in outliers]


def cheapest(report: records.Report, targets: records.Targets) -> list[str]:
    """Return the size that trains so many epochs in time for the fewest GPU-hours, in a sentence.

    Sizes by a fit are considered only if no measured size is fast enough. Empty without a target.
    """
    epochs, within_seconds = targets.epochs, targets.within_seconds
    if epochs is None or within_seconds is None:
        return []
    target = f"{count(epochs, 'epoch')} within {display.seconds(within_seconds)}"
    timed = [
        (row, epochs * row.epoch_seconds)
        for curve in report.curves
        for row in curve.rows
        if row.epoch_seconds is not None
    ]
    if not timed:
        return [f"{target}: the time per epoch is unknown; set --samples-per-epoch"]
    options = [
        (seconds * row.charged, seconds, row.point.size, row.curve, _slowest(row, seconds, targets))
        for row, seconds in timed
        if seconds <= within_seconds
    ]
    samples = {row.curve: seconds * row.point.throughput.value for row, seconds in timed}
    if not (options := options or [*_options_by_fit(report, samples, within_seconds)]):
        reason = "no measured size is fast enough, and one size is too few for a fit"
        if all_fits := [*filter(None, map(best_fit, report.curves))]:
            reason = "no size up to twice the largest measured is fast enough"
            if any(fit.rejected for fit in all_fits):
                reason = "no measured size is fast enough, and rejected fits are not used"
        return [f"{target}: {reason}"]
    cost, seconds, size, curve, note = min(options, key=lambda option: option[:2])
    of_curve = f" of {curve}" if curve else ""
    hours = {"gpus": "GPU-hours", "ranks": "rank-hours", "nodes": "node-hours"}[report.unit]
    return [
        f"{target}: cheapest with {display.size(size, report.unit)}{of_curve}: "
        f"{display.seconds(seconds)} and {display.number(cost / 3600.0)} {hours} of training{note}"
    ]


def _slowest(row: records.Row, seconds: float, targets: records.Targets) -> str:
    throughput = row.point.throughput
    slowest = seconds * throughput.value / (throughput.low or throughput.value)
    is_in_time = slowest <= (targets.within_seconds or 0.0)
    return "" if is_in_time else f"; up to {display.seconds(slowest)} by its confidence interval"


def _options_by_fit(
    report: records.Report, samples: dict[str, float], within_seconds: float
) -> Iterator[tuple[float, float, int, str, str]]:
    """Yield the cheapest size of each curve by its fit; `samples`: to be trained, by curve."""
    for curve in report.curves:
        fit = best_fit(curve)
        if fit is None or fit.rejected or curve.name not in samples:
            continue
        # Up to its peak the throughput grows and so does the cost: the first size is the cheapest.
        last = int(min(fit.largest, fit.peak() or fit.largest))
        sizes = range(fit.sizes[0], max(last, fit.sizes[0]) + 1)
        enough = samples[curve.name] / within_seconds
        first = bisect.bisect_left(sizes, enough, key=fit.throughput)
        if first < len(sizes):
            size = sizes[first]
            seconds = samples[curve.name] / fit.throughput(size)
            note = f" (by {_LAWS[fit.law]}, not measured)"
            yield seconds * size, seconds, size, curve.name, note
