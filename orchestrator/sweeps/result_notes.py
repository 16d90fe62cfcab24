"""What the table of a sweep's results means: numbers as text, and the notes below the table."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Sequence

from orchestrator import jobs
from orchestrator.metrics import choices
from orchestrator.sweeps import parameters, results
from orchestrator.text import nouns

#: More would be longer than the mean.
_MAX_DECIMALS = 8


def number(cell: results.Cell) -> str:
    """Return `0.912 ± 0.0045`, or the value alone if it has no interval; "": not reported.

    The half-width has two significant digits, and the mean as many decimals.
    """
    if cell.value is None:
        return ""
    if cell.low is None or cell.high is None:
        return f"{cell.value:.6g}"
    # Halved first: the difference of two large numbers may overflow.
    half_width = cell.high / 2 - cell.low / 2
    if not half_width or not math.isfinite(half_width):
        return f"{cell.value:.6g} ± {half_width:.2g}"
    decimals = 1 - math.floor(math.log10(half_width))
    if decimals > _MAX_DECIMALS or half_width >= 1e6:
        return f"{cell.value:.6g} ± {half_width:.2g}"
    decimals = max(decimals, 0)
    return f"{cell.value:.{decimals}f} ± {half_width:.{decimals}f}"


def states(runs: Sequence[results.Run]) -> str:
    """Return `COMPLETED`, or `2 COMPLETED, 1 FAILED` if the runs have several states."""
    counts = collections.Counter(map(_state, runs))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def _state(run: results.Run) -> str:
    return "not submitted" if run.state is None else str(run.state)


def counted(row: results.Row) -> str:
    """Return how many runs are in the mean of the first metric: `3`, or `2/3` if some are not."""
    total = len(row.runs)
    count = row.cells[0].count if row.is_final and row.cells else 0
    return str(total) if count == total else f"{count}/{total}"


def name(row: results.Row, shown: results.Results) -> str:
    """Return `lr=0.1 batch_size=64`."""
    return " ".join(
        f"{each.heading}={parameters.shown(row.parameters[each.key])}" for each in shown.columns
    )


def legend(shown: results.Results) -> list[str]:
    """Return what each metric is, and what its mean is of."""
    lines = []
    for index, choice in enumerate(shown.choices):
        lines.append(f"{choice.label}: {_description(choice, _units(shown, index))}")
    if any(cell.low is not None for row in shown.rows for cell in row.cells):
        over = [each.heading for each in shown.averaged]
        lines.append(
            f"Rows are means over {' and '.join(over)}; ± is the 95 % confidence interval of the "
            "mean (Student's t)"
        )
    return lines


def _units(shown: results.Results, index: int) -> list[str]:
    units = (row.cells[index].unit for row in shown.rows)
    return [*dict.fromkeys(unit for unit in units if unit)]


def _description(choice: choices.Choice, units: Sequence[str]) -> str:
    if choice.at:
        goal = "highest" if choice.at_direction > 0 else "lowest"
        text = f"{choice.name} where {choice.at} is {goal}"
    elif choice.statistic in ("first", "last"):
        text = f"{choice.statistic} value of each run"
    else:
        words = {"min": "smallest value", "max": "largest value"}
        text = f"{words.get(choice.statistic, choice.statistic)} of each run"
    if units:
        text += f", {' or '.join(units)}"
    if not choice.direction:
        return text
    return f"{text}; {'higher' if choice.direction > 0 else 'lower'} is better"


def warnings(shown: results.Results) -> list[str]:
    """Return what a reader could get wrong: runs that do not count, and a winner by chance."""
    lines = []
    if shown.choices and not shown.choices[0].direction:
        lines.append(
            f"Not ranked: it is not known whether a high or a low {shown.choices[0].name} is "
            "better; state --direction max or min"
        )
    lines += _not_counted(shown)
    lines += _unclear_winner(shown)
    return lines


def _not_counted(shown: results.Results) -> list[str]:
    runs = list(itertools.chain.from_iterable(row.runs for row in shown.rows))
    finished = [run for run in runs if run.state is jobs.JobState.COMPLETED]
    others = [run for run in runs if run.state is not jobs.JobState.COMPLETED]
    lines = []
    has_values = any(each is not None for run in others for each in run.measured)
    if has_values and shown.with_unfinished:
        lines.append(f"Counted with what they reported: {_state_counts(others)}")
    elif others:
        advice = "; --unfinished counts what they reported" if has_values else ""
        lines.append(f"Not counted: {_state_counts(others)}{advice}")
    for index, choice in enumerate(shown.choices):
        if missing := [run for run in finished if run.measured[index] is None]:
            lines.append(f"Not counted: {_state_counts(missing)} without {choice.label}")
    return lines


def _state_counts(runs: Iterable[results.Run]) -> str:
    counts = collections.Counter(map(_state, runs))
    return ", ".join(
        f"{number} {state}" if state == "not submitted" else nouns.count(number, f"{state} run")
        for state, number in counts.most_common()
    )


def _unclear_winner(shown: results.Results) -> list[str]:
    ranked = {row.rank: row for row in shown.rows}
    first, second = ranked.get(1), ranked.get(2)
    if first is None or second is None:
        return []
    one, two = first.cells[0], second.cells[0]
    pair = f"{name(first, shown)} ({number(one)}) and {name(second, shown)} ({number(two)})"
    if one.value == two.value:
        return [f"No clear winner: {pair} are equal"]
    if None in (one.low, one.high, two.low, two.high):
        return []
    assert one.low is not None and one.high is not None
    assert two.low is not None and two.high is not None
    if one.low <= two.high and two.low <= one.high:
        return [f"No clear winner: the intervals of {pair} overlap"]
    return []
