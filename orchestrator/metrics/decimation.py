"""Fewer points of a curve that look the same: spikes and gaps stay."""

from __future__ import annotations

import math

from orchestrator import metrics


def decimate(
    x: metrics.Numbers, y: metrics.Numbers, buckets: int
) -> tuple[list[float], list[float | None]]:
    """Return the lowest and the highest point of each bucket, in their order.

    Buckets have the same number of points. A bucket with NaN or infinite values also has a point
    without a value, so that the curve has a gap there. The first and the last point stay.

    Args:
        x, y: shape (points,); y may be NaN or infinite.
        buckets: at least 1. The result has at most about three points for each.
    """
    count = len(x)
    if count <= 2 * buckets:
        return list(x), [value if math.isfinite(value) else None for value in y]
    places: list[tuple[int, bool]] = [(0, True)]
    for bucket in range(buckets):
        begin, end = bucket * count // buckets, (bucket + 1) * count // buckets
        part = y[begin:end]
        if math.isfinite(sum(part)):
            low, high = begin + part.index(min(part)), begin + part.index(max(part))
            places += [(place, True) for place in sorted({low, high})]
            continue
        finite = [(value, place) for place, value in enumerate(part, begin) if math.isfinite(value)]
        gap = begin + next(n for n, value in enumerate(part) if not math.isfinite(value))
        kept = {min(finite)[1], max(finite)[1]} if finite else set()
        places += sorted([(gap, False), *((place, True) for place in kept)])
    places.append((count - 1, True))
    unique = list(dict.fromkeys(place for place in places))
    values = [y[place] if is_value else math.nan for place, is_value in unique]
    return (
        [x[place] for place, _ in unique],
        [value if math.isfinite(value) else None for value in values],
    )
