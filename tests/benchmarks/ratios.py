"""Time two commands alternately and compare their medians."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """The time of our code divided by that of a reference."""

    #: name in the table
    label: str
    #: of each run, ours and the reference's
    ours_seconds: Sequence[float]
    bare_seconds: Sequence[float]
    #: the largest ratio allowed; None: no limit
    budget: float | None

    @property
    def value(self) -> float:
        """The ratio of the medians."""
        return statistics.median(self.ours_seconds) / statistics.median(self.bare_seconds)

    @property
    def kept(self) -> bool:
        """Whether the ratio is within its budget."""
        return self.budget is None or self.value <= self.budget


def measure(
    label: str,
    ours: Callable[[], object],
    bare: Callable[[], object],
    *,
    repeats: int,
    budget: float | None,
    after: Callable[[], object] = lambda: None,
) -> Ratio:
    """Time both alternately, so that other load affects both; the first run does not count.

    `after` is called after each run and is not timed.
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
    return Ratio(label=label, ours_seconds=seconds[0], bare_seconds=seconds[1], budget=budget)


def table(ratios: Sequence[Ratio]) -> str:
    """Return a Markdown table: median seconds, ratio, budget."""
    lines = ["| what | here | bare | ratio | budget |", "|---|---|---|---|---|"]
    for ratio in ratios:
        budget = "-" if ratio.budget is None else f"{ratio.budget:g}"
        ours, bare = statistics.median(ratio.ours_seconds), statistics.median(ratio.bare_seconds)
        lines.append(
            f"| {ratio.label} | {ours:.3f} s | {bare:.3f} s | {ratio.value:.2f} | {budget} |"
        )
    return "\n".join(lines)
