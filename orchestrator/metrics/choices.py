"""Which number of a run is compared: `val_loss`, `throughput:mean`, `loss@val_accuracy`."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from orchestrator.metrics import records, summaries

_GOALS = {"": 0, "min": -1, "max": 1}


#: Without a choice, the first of these that the runs have.
_USUAL = ("val_accuracy", "val_loss", "accuracy", "loss", "throughput")


class ChoiceError(ValueError):
    """A choice is invalid; the message says why."""


class UnknownMetricError(ChoiceError):
    """No run has this metric."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """A statistic of a metric, or its value where another metric is best."""

    #: as the user may write it: `loss:best`
    label: str
    name: str
    #: last, max, ..., as in summaries.STATISTICS; "best" became min or max
    statistic: str
    #: 1: the largest value is best; -1: the smallest; 0: unknown
    direction: int
    #: the other metric; "": none
    at: str = ""
    #: whether its largest (1) or its smallest value (-1) is best
    at_direction: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.at) if self.at else (self.name,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    #: may be NaN
    value: float
    unit: str
    #: where it was reported; None: of many values, or unknown
    step: int | None = None
    epoch: int | None = None


def sort_key(name: str) -> tuple[int, str]:
    """Sort metrics: first what people look at first, then losses and accuracies, then the rest."""
    if name in _USUAL:
        return _USUAL.index(name), name
    is_result = "loss" in name or "acc" in name
    return len(_USUAL) + (not is_result), name


def usual_names(names: Sequence[str]) -> list[str]:
    """Return the metric by which runs are ranked unless one is chosen; none if there is none."""
    known = [name for name in names if summaries.direction(name)]
    return [name for name in (*_USUAL, *known) if name in names][:1]


def resolve(
    texts: Sequence[str],
    names: Sequence[str],
    direction: int = 0,
    alias: Callable[[str], str | None] = lambda name: None,
) -> list[Choice]:
    """Return the choices `NAME`, `NAME:STATISTIC` and `NAME@OTHER`, each once.

    NAME may be a shell pattern. `@OTHER:min` and `@OTHER:max` state what is best.

    Args:
        names: of the metrics that the runs have; empty: unknown, all are accepted.
        direction: of the first metric; 0: by its name.
        alias: our name for a program's name of a metric.

    Raises:
        ChoiceError.
    """
    chosen: dict[str, Choice] = {}
    directions: dict[str, int] = {}
    for text in texts:
        own, is_at, other = text.partition("@")
        name, is_statistic, statistic = own.partition(":")
        if is_at and is_statistic:
            raise ChoiceError(f"{text!r}: {name}@{other} is one value: remove :{statistic}")
        matching = _matching(name, names, alias)
        if direction and not directions:
            directions[matching[0]] = direction
        at, at_direction = "", 0
        if is_at:
            at, at_direction = _at(text, other, names, alias, directions)
        for each in matching:
            known = directions.get(each) or summaries.direction(each)
            _, is_goal, goal = other.partition(":")
            rest = f"@{at}{is_goal}{goal}" if is_at else f"{is_statistic}{statistic}"
            label = f"{each}{rest}"
            chosen[label] = Choice(
                label=label,
                name=each,
                statistic="" if is_at else _statistic(each, statistic, known),
                direction=known,
                at=at,
                at_direction=at_direction,
            )
    return list(chosen.values())


def _matching(name: str, names: Sequence[str], alias: Callable[[str], str | None]) -> Sequence[str]:
    if not name:
        raise ChoiceError("name a metric, such as val_accuracy")
    if matching := [name] if name in names else fnmatch.filter(names, name):
        return matching
    if (known := alias(name)) is not None and (known in names or not names):
        return [known]
    if not names:
        return [name]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]}? " if near else ""
    raise UnknownMetricError(f"no run has a metric {name!r}: {advice}Names: {', '.join(names)}")


def _at(
    text: str,
    other: str,
    names: Sequence[str],
    alias: Callable[[str], str | None],
    directions: Mapping[str, int],
) -> tuple[str, int]:
    name, _, goal = other.partition(":")
    if goal not in _GOALS:
        raise ChoiceError(f"{text!r}: after @{name} write :min or :max, or nothing")
    matching = _matching(name, names, alias)
    if len(matching) > 1:
        raise ChoiceError(f"{text!r}: {name} stands for {', '.join(matching)}; name one of them")
    (name,) = matching
    direction = _GOALS[goal] or directions.get(name) or summaries.direction(name)
    if not direction:
        raise ChoiceError(
            f"{text!r}: it is not known which {name} is best: write @{name}:min or @{name}:max"
        )
    return name, direction


def _statistic(name: str, text: str, direction: int) -> str:
    if not text:
        return summaries.usual(name)
    try:
        statistic, *more = summaries.statistics(text)
    except ValueError as exc:
        raise ChoiceError(f"{name}:{text}: {exc}") from exc
    if more:
        raise ChoiceError(f"{name}:{text}: name one statistic")
    if statistic != "best":
        return statistic
    if not direction:
        raise ChoiceError(
            f"{name}:best: it is not known which {name} is best: write {name}:min or {name}:max"
        )
    return "max" if direction > 0 else "min"


def measure(rows: Sequence[records.MetricRow], choice: Choice) -> Measured | None:
    """Return the chosen number of a run; None if the run has none.

    rows: the metrics of the run, by job and in the order of reading
    """
    current = _current(rows, choice.name)
    if not current:
        return None
    if choice.at:
        best = _best(_current(rows, choice.at), choice.at_direction)
        row = None if best is None else _at_row(current, best)
        return None if row is None else _of_row(row)
    if choice.statistic == "last":
        return _of_row(current[-1])
    if choice.statistic in ("min", "max"):
        best = _best(current, 1 if choice.statistic == "max" else -1)
        return _of_row(current[-1] if best is None else best)
    summary = summaries.Summary(name=choice.name)
    for row in current:
        summary.add(row.value)
    value = summary.of(choice.statistic)
    return None if value is None else Measured(value=value, unit=current[-1].unit)


def _of_row(row: records.MetricRow) -> Measured:
    value = math.nan if row.value is None else row.value
    return Measured(value=value, unit=row.unit, step=row.step, epoch=row.epoch)


def _current(rows: Sequence[records.MetricRow], name: str) -> list[records.MetricRow]:
    """Return the values of a metric that no later attempt replaced.

    An attempt that continues from a checkpoint repeats some steps, one that starts over repeats
    all: it replaces what earlier attempts reported from its first step (or epoch) on.
    """
    series = [row for row in rows if row.name == name]
    if len({row.unit for row in series}) > 1:
        # A program may report images/s and TFLOP/s under one name.
        units = [row.unit for row in series]
        unit = max(dict.fromkeys(units), key=units.count)
        series = [row for row in series if row.unit == unit]
    kept: list[records.MetricRow] = []
    attempts = sorted(series, key=_attempt)
    for _, group in itertools.groupby(attempts, _attempt):
        new = list(group)
        if kept and (fields := _shared([*kept, *new])):
            begins = min(_place(row, fields) for row in new)
            kept = [row for row in kept if _place(row, fields) < begins]
        kept += new
    return kept


def _attempt(row: records.MetricRow) -> tuple[int, int]:
    # A job that continues another one is newer, so its row is greater.
    return row.job_row, row.attempt


def _shared(rows: Sequence[records.MetricRow]) -> list[str]:
    """Return which of epoch and step all these rows have.

    Both count: some programs start each epoch with step 0.
    """
    return [
        name for name in ("epoch", "step") if all(getattr(row, name) is not None for row in rows)
    ]


def _place(row: records.MetricRow, fields: Sequence[str]) -> tuple[int, ...]:
    return tuple(getattr(row, name) for name in fields)


def _best(rows: Sequence[records.MetricRow], direction: int) -> records.MetricRow | None:
    """Return the row with the best finite value, the first of equal ones."""
    finite = [(row, row.value) for row in rows if row.value is not None]
    finite = [(row, value) for row, value in finite if math.isfinite(value)]
    return max(finite, key=lambda pair: direction * pair[1], default=(None,))[0]


def _at_row(rows: Sequence[records.MetricRow], best: records.MetricRow) -> records.MetricRow | None:
    """Return the value that was reported with `best`, or else the last one before it.

    By step and epoch. Where these do not tell, by the order in the log.
    """
    before = []
    for row in rows:
        if fields := _shared([row, best]):
            is_before = _place(row, fields) <= _place(best, fields)
        else:
            is_same_file = (row.job_row, row.log_id) == (best.job_row, best.log_id)
            is_same_line = row.line is not None and row.line == best.line
            is_before = is_same_file and (is_same_line or row.id <= best.id)
        if is_before:
            before.append(row)
    return before[-1] if before else None
