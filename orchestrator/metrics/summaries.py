"""Many numbers -> a few: mean, percentiles, best; and the numbers of several jobs side by side.

Pure.
"""

from __future__ import annotations

import array
import dataclasses
import math
import re
from collections.abc import Sequence

from orchestrator.scaling import quantiles

#: What can be asked for; beside these any percentile: p5, p95, p99.9.
STATISTICS = ("count", "nan", "first", "last", "mean", "std", "min", "median", "max", "best")
ALL = (*STATISTICS[:7], "p5", "median", "p95", "max", "best")

_PERCENTILE = re.compile(r"p(100|[0-9]{1,2}(?:\.[0-9]{1,3})?)")
#: Words in a name that tell which way is better. `accuracy_loss` is a loss: these come first.
_LOW = frozenset(
    "loss error err perplexity ppl time seconds latency wer cer mae mse rmse bpb".split()
)
_HIGH = frozenset(
    "throughput accuracy acc acc1 acc5 top1 top5 mfu hfu tflops per speedup utilization "
    "utilisation f1 auc map bleu rouge iou miou dice precision recall score".split()
)
#: Rates and times vary from one moment to the next: their middle counts. Of all else the last does.
_MIDDLE = frozenset(
    "throughput per seconds time latency mfu hfu tflops memory utilization utilisation".split()
)


#: Millions of squares of numbers up to this have a sum.
_SQUARABLE = 1e140


class UnknownStatisticError(ValueError):
    """The message says what is known."""


def statistics(text: str) -> tuple[str, ...]:
    """Return the statistics of a list such as `last,median,p95`; `all` is many of them."""
    found: list[str] = []
    for name in (part.strip().lower() for part in text.split(",")):
        if name == "all":
            found += ALL
        elif name in STATISTICS or _PERCENTILE.fullmatch(name):
            found.append(name)
        elif name:
            raise UnknownStatisticError(
                f"no statistic {name!r}: there are {', '.join(STATISTICS)}, all, and percentiles "
                "such as p5 and p95"
            )
    if not found:
        raise UnknownStatisticError("no statistic is named")
    return tuple(dict.fromkeys(found))


def direction(name: str) -> int:
    """Return 1 where the largest is the best, -1 where the smallest is, 0 where none is."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return -1 if words & _LOW else 1 if words & _HIGH else 0


def usual(name: str) -> str:
    """Return the statistic that runs are compared by, unless one is asked for."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return "median" if words & _MIDDLE else "last"


@dataclasses.dataclass(kw_only=True)
class Summary:
    """The numbers of one name and unit of one job, as they come."""

    #: what is largest or smallest
    name: str
    #: finite ones
    values: array.array[float] = dataclasses.field(default_factory=lambda: array.array("d"))
    #: numbers that are none: NaN, and without end
    nan: int = 0
    first: float = math.nan
    last: float = math.nan
    best: float = math.nan
    best_step: int | None = None
    best_epoch: int | None = None

    def __post_init__(self) -> None:
        self._direction = direction(self.name)
        self._sorted: list[float] = []

    def add(self, value: float | None, step: int | None = None, epoch: int | None = None) -> None:
        """Take one more number; None is NaN."""
        number = math.nan if value is None else value
        if not self.values and not self.nan:
            self.first = number
        self.last = number
        if not math.isfinite(number):
            self.nan += 1
            return
        self.values.append(number)
        better = self._direction * number
        if self._direction and not better <= self._direction * self.best:
            self.best, self.best_step, self.best_epoch = number, step, epoch

    def of(self, statistic: str) -> float | int | None:
        """Return a statistic; none where there are no numbers for it."""
        if statistic == "count":
            return len(self.values)
        if statistic == "nan":
            return self.nan
        if statistic in ("first", "last"):
            told = self.values or self.nan
            return (self.first if statistic == "first" else self.last) if told else None
        if not self.values:
            return None
        if statistic == "best":
            return self.best if self._direction else None
        if statistic == "mean":
            return self._mean()
        if statistic == "std":
            return self._deviation()
        if statistic == "min":
            return min(self.values)
        if statistic == "max":
            return max(self.values)
        share = 0.5 if statistic == "median" else float(statistic[1:]) / 100.0
        # Sorted once for all percentiles; sorting what is sorted takes no time.
        self._sorted = self._sorted or sorted(self.values)
        return quantiles.quantile(self._sorted, share)

    def _deviation(self) -> float | None:
        """Return the sample's standard deviation; none of one number."""
        count = len(self.values)
        if count < 2:
            return None
        # A loss on its way to infinity: the squares of such numbers have no end.
        largest = max(map(abs, self.values))
        scale = largest if largest > _SQUARABLE else 1.0
        mean = self._mean() / scale
        squares = math.fsum((value / scale - mean) ** 2 for value in self.values)
        return scale * math.sqrt(squares / (count - 1))

    def _mean(self) -> float:
        count = len(self.values)
        try:
            return math.fsum(self.values) / count
        except OverflowError:
            return math.fsum(value / count for value in self.values)


def ratio(value: float | int | None, first: float | int | None) -> float | None:
    """Return how many times the first one it is; none where that means nothing."""
    if value is None or first is None or not math.isfinite(value) or not math.isfinite(first):
        return None
    return value / first if first else None


#: From the lowest to the highest; the last stands for what is no number.
BLOCKS = "▁▂▃▄▅▆▇█x"
ASCII = "_.-~=+*#x"


def sparkline(values: Sequence[float | None], glyphs: str = BLOCKS) -> str:
    """Return a character a value, from the lowest to the highest of them."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Halved: the difference of the largest numbers has no end.
    span = high / 2 - low / 2
    levels = len(glyphs) - 1
    drawn = []
    for value in values:
        if value is None or not math.isfinite(value):
            drawn.append(glyphs[-1])
        elif span <= 0:
            drawn.append(glyphs[levels // 2])
        else:
            drawn.append(glyphs[min(int((value / 2 - low / 2) / span * levels), levels - 1)])
    return "".join(drawn)
