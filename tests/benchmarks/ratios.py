"""Two commands timed in turns, and what one takes of the other's time."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """The product's time by that of what it is measured against."""

    #: What was timed, as a row of the table names it.
    what: str
    #: Seconds of each run of the product, and of what it is measured against.
    ours_seconds: Sequence[float]
    bare_seconds: Sequence[float]
    #: What the ratio may be at most; None: told only.
    budget: float | None

    @property
    def value(self) -> float:
        """Median by median."""
        return statistics.median(self.ours_seconds) / statistics.median(self.bare_seconds)

    @property
    def kept(self) -> bool:
        """True when it is within its budget."""
        return self.budget is None or self.value <= self.budget


def measure(
    what: str,
    ours: Callable[[], object],
    bare: Callable[[], object],
    *,
    repeats: int,
    budget: float | None,
    after: Callable[[], object] = lambda: None,
) -> Ratio:
    """Time both in turns, so that what else the machine does meets both; once before, uncounted.

    `after` follows each run, outside the time.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 1):
        for timed, kept in zip((ours, bare), seconds, strict=True):
            began = time.perf_counter()
            timed()
            took = time.perf_counter() - began
            after()
            if number:
                kept.append(took)
    return Ratio(what=what, ours_seconds=seconds[0], bare_seconds=seconds[1], budget=budget)


def table(ratios: Sequence[Ratio]) -> str:
    """Return the ratios as a Markdown table: medians in seconds, the ratio, its budget."""
    lines = ["| what | here | bare | ratio | budget |", "|---|---|---|---|---|"]
    for ratio in ratios:
        budget = "-" if ratio.budget is None else f"{ratio.budget:.1f}"
        ours, bare = statistics.median(ratio.ours_seconds), statistics.median(ratio.bare_seconds)
        lines.append(
            f"| {ratio.what} | {ours:.3f} s | {bare:.3f} s | {ratio.value:.2f} | {budget} |"
        )
    return "\n".join(lines)
