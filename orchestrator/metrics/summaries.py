"""Summarizes metrics of a job: mean, percentiles, best value, sparkline."""

from __future__ import annotations

import array
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence

from orchestrator.scaling import quantiles

#: Besides these any percentile: p5, p95, p99.9.
STATISTICS = ("count", "nan", "first", "last", "mean", "std", "min", "median", "max", "best")
ALL = (*STATISTICS[:7], "p5", "median", "p95", "max", "best")

_PERCENTILE = re.compile(r"p(100|[0-9]{1,2}(?:\.[0-9]{1,3})?)")
#: Words in the name of a metric whose smallest value is best. They take precedence over _HIGH:
#: `accuracy_loss` is a loss, `top1_err` an error.
_LOW = frozenset(
    "loss error errors err perplexity ppl nll time seconds secs ms latency duration wer cer mae "
    "mse rmse mape bpb bpc fid regret eer hamming".split()
)
_HIGH = frozenset(
    "throughput accuracy acc top mfu hfu tflops gflops per speedup efficiency utilization "
    "utilisation f auc auroc auprc map ap bleu chrf rouge meteor cider iou miou dice precision "
    "recall score ndcg mrr hits psnr ssim kappa mcc reward elo".split()
)
#: Rates and durations vary, so their median counts. Of all other metrics the last value does.
_VARYING = frozenset(
    "throughput per seconds time latency mfu hfu tflops memory utilization utilisation".split()
)
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
#: The sum of millions of squares of larger numbers overflows.
_SQUARABLE = 1e140


def statistics(text: str) -> tuple[str, ...]:
    """Parse a list such as `last,median,p95`; `all` stands for many of them. Raises ValueError."""
    names: list[str] = []
    for name in (part.strip().lower() for part in text.split(",")):
        if name == "all":
            names += ALL
        elif name in STATISTICS or _PERCENTILE.fullmatch(name):
            names.append(name)
        elif name:
            raise ValueError(
                f"unknown statistic {name!r}: use {', '.join(STATISTICS)}, all, or percentiles "
                "such as p5 and p95"
            )
    if not names:
        raise ValueError("no statistic given")
    return tuple(dict.fromkeys(names))


# Thousands of jobs have the same names.
@functools.lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    """Return the words of a name, without digits at their end: `valTop1_map50` has top and map."""
    words = re.findall(r"[a-z]+", _CAMEL_CASE.sub("_", name).lower())
    # What follows "per" is not measured: images_per_second is a rate, seconds_per_image a time.
    pairs = zip(["", *words], words, strict=False)
    return frozenset(word for before, word in pairs if before != "per")


def direction(name: str) -> int:
    """Return 1 if the largest value of a metric is best, -1 if the smallest is, otherwise 0."""
    words = _words(name)
    return -1 if words & _LOW else 1 if words & _HIGH else 0


def usual(name: str) -> str:
    """Return the statistic by which runs are compared by default."""
    return "median" if _words(name) & _VARYING else "last"


@dataclasses.dataclass(kw_only=True)
class Summary:
    """The values of one metric of one job. add() takes them one by one."""

    name: str
    #: finite values
    values: array.array[float] = dataclasses.field(default_factory=lambda: array.array("d"))
    #: number of other values
    nan: int = 0
    first: float | None = None
    last: float | None = None
    best: float | None = None
    best_step: int | None = None
    best_epoch: int | None = None

    def __post_init__(self) -> None:
        self._direction = direction(self.name)
        self._sorted: list[float] = []

    def add(self, value: float | None, step: int | None = None, epoch: int | None = None) -> None:
        """Add a value; None is NaN."""
        number = math.nan if value is None else value
        self.first = number if self.first is None else self.first
        self.last = number
        if not math.isfinite(number):
            self.nan += 1
            return
        self.values.append(number)
        is_better = self.best is None or self._direction * number > self._direction * self.best
        if self._direction and is_better:
            self.best, self.best_step, self.best_epoch = number, step, epoch

    def of(self, statistic: str) -> float | int | None:
        """Return a statistic; None if there are no values for it."""
        if statistic == "count":
            return len(self.values)
        if statistic in ("nan", "first", "last"):
            value: float | int | None = getattr(self, statistic)
            return value
        if not self.values:
            return None
        compute: dict[str, Callable[[], float | None]] = {
            "best": lambda: self.best,
            "mean": self._mean,
            "std": self._standard_deviation,
            "min": lambda: min(self.values),
            "max": lambda: max(self.values),
        }
        if statistic in compute:
            return compute[statistic]()
        share = 0.5 if statistic == "median" else float(statistic[1:]) / 100.0
        self._sorted = self._sorted or sorted(self.values)
        return quantiles.quantile(self._sorted, share)

    def _standard_deviation(self) -> float | None:
        """Return the standard deviation of the sample; None for one value."""
        count = len(self.values)
        if count < 2:
            return None
        # A diverging loss may have values whose squares overflow.
        largest = max(map(abs, self.values))
        scale = largest if largest > _SQUARABLE else 1.0
        mean = self._mean() / scale
        squares = math.fsum((value / scale - mean) ** 2 for value in self.values)
        return scale * math.sqrt(squares / (count - 1))

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """Return the confidence interval of the mean (Student's t); None for fewer than two values.

        It assumes independent values of a normal distribution, such as the results of runs with
        different seeds. The values of one run over time are not.
        """
        deviation, count = self._standard_deviation(), len(self.values)
        if deviation is None:
            return None
        quantile = quantiles.student_t((1.0 + confidence) / 2.0, count - 1)
        margin = quantile * deviation / math.sqrt(count)
        return self._mean() - margin, self._mean() + margin

    def _mean(self) -> float:
        count = len(self.values)
        try:
            return math.fsum(self.values) / count
        except OverflowError:
            return math.fsum(value / count for value in self.values)


def ratio(value: float | int | None, first: float | int | None) -> float | None:
    """Return value / first; None if it is undefined."""
    if value is None or first is None or not math.isfinite(value) or not math.isfinite(first):
        return None
    return value / first if first else None


#: From the lowest to the highest value; the last one is for NaN.
BLOCKS = "▁▂▃▄▅▆▇█x"
ASCII = "_.-~=+*#x"


def sparkline(values: Sequence[float | None], glyphs: str = BLOCKS) -> str:
    """Draw one character per value."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Halved, as the difference of two large numbers may overflow.
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
