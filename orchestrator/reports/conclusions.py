"""What a study is asked: how many GPUs still pay, and the cheapest way to be done in time."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import scaling
from orchestrator.reports import display, records
from orchestrator.scaling import regression

_HOUR_SECONDS = 3600.0
#: So many curves are named beside the fastest.
_MOST_NEXT = 5
_LAWS = {"amdahl": "Amdahl's law", "usl": "the Universal Scalability Law"}


def best_fit(curve: records.Curve) -> scaling.Fit | None:
    """Return the law to ask: the Universal Scalability Law where there is one."""
    return curve.study.usl or curve.study.amdahl


def fit_lines(curve: records.Curve, unit: str) -> list[str]:
    """Return a sentence for each law fitted, and the serial shares that need no fit."""
    laws = (curve.study.amdahl, curve.study.usl)
    lines = [_fit_line(fit, unit) for fit in laws if fit is not None]
    shares = [
        f"{display.interval(row.point.serial_share)} at {row.point.gpus}"
        for row in curve.rows
        if row.point.serial_share is not None
    ]
    if shares:
        lines.append(f"Karp and Flatt's serial share: {'; '.join(shares)}")
    return lines


def _fit_line(fit: scaling.Fit, unit: str) -> str:
    parts = [f"{display.size(1, unit)} {_told(fit.parameters['gamma'])} a second"]
    if fit.law == "amdahl":
        parts.append(f"serial share {_told(fit.parameters['alpha'])}")
    else:
        parts.append(f"contention {_told(fit.parameters['alpha'])}")
        parts.append(f"coherency {_told(fit.parameters['beta'])}")
        peak = fit.peak()
        if peak is not None:
            beyond = "" if fit.reaches(peak) else ", more than twice the largest measured"
            parts.append(f"fastest at {display.size(max(1, round(peak)), unit)}{beyond}")
    if fit.degrees > 0:
        parts.append(f"runs lie {display.share(fit.deviation)} from it")
    else:
        parts.append("as many parameters as runs: no intervals")
    law = _LAWS[fit.law]
    return f"{law[0].upper()}{law[1:]}: {'; '.join(parts)}"


def _told(estimate: scaling.Estimate) -> str:
    if estimate.at_bound and estimate.high is not None and estimate.value <= 0.0:
        return f"0, at its bound; below {display.number(estimate.high)} (one-sided)"
    if estimate.at_bound and estimate.low is not None:
        return f"1, at its bound; above {display.number(estimate.low)} (one-sided)"
    return display.interval(estimate)


def most_gpus(curve: records.Curve, efficiency: float, unit: str) -> str | None:
    """Return the most GPUs that keep the efficiency, in a sentence; none without a fit."""
    fit = best_fit(curve)
    if fit is None:
        return None
    most, is_end = fit.most_gpus(efficiency)
    above = f"Efficiency stays above {display.share(efficiency)}"
    by = f"by {_LAWS[fit.law]}"
    largest = fit.sizes[-1]
    told = f"{above} up to {display.size(most, unit)}"
    if is_end:
        told += f" at least, {by}: twice the largest measured, and it is not asked for more"
    elif most > largest:
        told += f", {by}: beyond the {largest} measured"
    else:
        told += f", {by}"
    return told + _contradiction(curve, most, efficiency, unit)


def _contradiction(curve: records.Curve, most: int, efficiency: float, unit: str) -> str:
    """Return the first size that was measured on the other side; "" where none was.

    A law that fits badly has another baseline than the table.
    """
    for row in curve.rows:
        found = row.point.efficiency
        ends = found.low, found.high
        low, high = (found.value if end is None else end for end in ends)
        if high < efficiency if row.point.gpus <= most else low > efficiency:
            at = display.size(row.point.gpus, unit)
            return f"; but {at} measured {display.interval(found, 'share')}"
    return ""


def fastest(curves: Sequence[records.Curve], unit: str) -> list[str]:
    """Return which curve is the fastest at each size that several have, and how near the next."""
    by_size: dict[int, list[tuple[records.Curve, records.Row]]] = {}
    for curve in curves:
        for row in curve.rows:
            if not row.shared:
                by_size.setdefault(row.point.gpus, []).append((curve, row))
    told = []
    for size, rows in sorted(by_size.items()):
        if len(rows) < 2:
            continue
        (first, best), *others = sorted(rows, key=lambda one: -one[1].point.throughput.value)
        next_ones = [f"{curve.name} has {_part(row, best)}" for curve, row in others[:_MOST_NEXT]]
        more = f", {len(others) - _MOST_NEXT} more less" if len(others) > _MOST_NEXT else ""
        head = f"{display.size(size, unit)}: {first.name} is fastest"
        told.append(f"{head}; of that {', '.join(next_ones)}{more}")
    return told


def _part(row: records.Row, best: records.Row) -> str:
    found = regression.compare(_throughputs(row), _throughputs(best))
    part = display.interval(
        scaling.Estimate(value=found.ratio, low=found.low, high=found.high), "share"
    )
    is_sure = found.verdict is regression.Verdict.SLOWER
    return part if is_sure or found.low is None else f"{part}: no evidence"


def _throughputs(row: records.Row) -> list[float]:
    far = set(map(id, row.left_out))
    return [one.throughput for one in row.measurements if id(one) not in far]


def cheapest(curves: Sequence[records.Curve], epochs: int, within_seconds: float, unit: str) -> str:
    """Return the size that trains so many epochs in time for the fewest GPU-hours, in a sentence.

    Measured sizes first; where none is fast enough, sizes that a fit may be asked about.
    """
    wanted = f"{epochs} epoch{'' if epochs == 1 else 's'} within {display.seconds(within_seconds)}"
    timed = [
        (epochs * row.epoch_seconds, row, curve)
        for curve in curves
        for row in curve.rows
        if row.epoch_seconds is not None
    ]
    if not timed:
        return f"{wanted}: the time of an epoch is not known; --samples-per-epoch gives it"
    done = [(took * row.charged, took, row, curve) for took, row, curve in timed]
    fitting = [one for one in done if one[1] <= within_seconds]
    if fitting:
        cost, took, row, curve = min(fitting, key=lambda one: (one[0], one[1]))
        line = _way(wanted, row.point.gpus, took, cost, curve, unit)
        slow = _slow_end(row, took)
        if slow is not None and slow > within_seconds:
            line += f"; at the slow end of its interval it takes {display.seconds(slow)}"
        return line
    return _by_fit(wanted, epochs, within_seconds, curves, unit)


def _way(wanted: str, gpus: int, took: float, cost: float, curve: records.Curve, unit: str) -> str:
    which = f" of {curve.name}" if curve.name else ""
    hours = {"gpus": "GPU-hours", "ranks": "rank-hours", "nodes": "node-hours"}[unit]
    return (
        f"{wanted}: cheapest with {display.size(gpus, unit)}{which}, {display.seconds(took)} and "
        f"{display.number(cost / _HOUR_SECONDS)} {hours} of training"
    )


def _slow_end(row: records.Row, took: float) -> float | None:
    throughput = row.point.throughput
    return None if throughput.low is None else took * throughput.value / throughput.low


def _by_fit(
    wanted: str,
    epochs: int,
    within_seconds: float,
    curves: Sequence[records.Curve],
    unit: str,
) -> str:
    ways, asked = [], False
    for curve in curves:
        fit = best_fit(curve)
        known = [row for row in curve.rows if row.epoch_seconds is not None]
        if fit is None or not known:
            continue
        asked = True
        row = known[-1]
        assert row.epoch_seconds is not None
        samples = row.epoch_seconds * row.point.throughput.value
        for gpus in range(fit.sizes[0], int(scaling.fits.REACH * fit.sizes[-1]) + 1):
            took = epochs * samples / fit.throughput(gpus)
            if took <= within_seconds:
                ways.append((took * gpus, took, gpus, curve, fit.law))
    if not asked:
        return (
            f"{wanted}: no size measured is fast enough; of one size alone nothing is told of "
            "larger ones"
        )
    if not ways:
        return f"{wanted}: no size measured is fast enough, and none up to twice the largest"
    cost, took, gpus, curve, law = min(ways, key=lambda one: (one[0], one[1]))
    line = _way(wanted, gpus, took, cost, curve, unit)
    return f"{line}; by {_LAWS[law]}, not measured"
