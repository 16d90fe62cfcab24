"""Counters of a line: which number is the step, and whether a counter alone is a metric."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.patterns import training_phases, vocabulary
from orchestrator.patterns.general import junk, prose, readings
from orchestrator.patterns.general.readings import Value
from orchestrator.patterns.vocabulary import Meaning

#: Before the number of steps that are done: after 100 steps
_DONE = re.compile(
    r"\b(?:after|trained|completed|processed|finished)[ ](?:for[ ])?$", re.IGNORECASE
)
_COUNTED = re.compile(
    r"(?:[ ]training)?[ ]([a-z]+)\b(?:\(s\))?(?P<done>[ ](?:processed|done|completed|finished)\b)?",
    re.IGNORECASE,
)
#: What is counted up to a total.
_DONE_OF_ALL = frozenset("steps iters iterations updates batches epochs".split())
#: What stands behind a number at the beginning of a line that is its step.
_FIRST_END = re.compile(
    r"[:|,>}]|[ ]+[0-9.]+[ ]?(?:ms|s|sec)\b|[ ]++(?![A-Za-z]|[-+]?[0-9.])|[ ]+([A-Za-z]\w+)"
)
#: The text around an integer whose place says what it is.
PLACE = re.compile(r"\W*", re.ASCII)
_STEP = Meaning("step", "counter")
#: Of several counters in a line these are the step.
_MAIN_STEPS = ("global_step", "step", "num_updates")
#: Beside others these are not the step.
_ITERATIONS = frozenset("step iter iteration".split())
_OUTER_STEPS = frozenset("game games number round generation gen".split())


def placed(
    places: Sequence[str], values: Sequence[Value], *, is_evaluation: bool = False
) -> list[Value]:
    """Return the counters that have no name: [3/90][10/500], [1, 2000], Epoch: 3 [10/500].

    Args:
        is_evaluation: the last counter is that of an evaluation, and not the step of the training.
    """
    named = {value.meaning.name for value in values}
    if any("epoch" in value.unit.split("/")[-2:] and "/" in value.unit for value in values):
        # A bar of 1.2s/epoch counts epochs.
        missing = ["epoch"] if "epoch" not in named else []
    elif "step" in named:
        missing = ["batch"] if "epoch" in named else ["epoch", "batch"][: len(places) // 2 * 2]
    else:
        missing = ["step"] if "epoch" in named else ["epoch", "step"]
    if len(places) < len(missing):
        missing = missing[-1:]
    if is_evaluation:
        missing = ["batch" if name == "step" else name for name in missing]
    return [
        Value(Meaning(name, "counter"), number, name)
        for name, number in zip(missing, places, strict=False)
    ]


def with_one_step(values: Sequence[Value]) -> list[Value]:
    """Return the values with one step: of `iter 40 step 10` the first is stored as iter."""
    steps = [value for value in values if value.meaning == _STEP]
    main = next((step for name in _MAIN_STEPS for step in steps if step.unit == name), None)
    inner = [step for step in steps if step.unit not in _OUTER_STEPS]
    main = main or next(iter(inner or steps), None)
    rivals = [step for step in steps if step.unit in _ITERATIONS]
    has_epoch = any(value.meaning.name == "epoch" for value in values)
    if has_epoch and main in rivals and not any(step.has_total for step in rivals):
        # The smaller one begins anew in each epoch.
        main = max(rivals, key=lambda step: float(step.number))
    return [
        value._replace(meaning=Meaning(_other_step(value), "counter"))
        if value.meaning == _STEP and value is not main
        else value
        for value in values
        if main is None or value is main or value.meaning != _STEP or value.number != main.number
    ]


def _other_step(value: Value) -> str:
    # STEP: 49/377 GLOBAL_STEP: 370050
    return "batch" if value.unit == "step" else value.unit


def without_batch_size(values: Sequence[Value]) -> list[Value]:
    """Return the values without a `batch 16` that is printed behind the metrics."""
    first = next((i for i, v in enumerate(values) if v.meaning.kind in vocabulary.STRONG), None)
    return [
        value
        for index, value in enumerate(values)
        if first is None or index < first or value.unit not in readings.BATCHES or value.has_total
    ]


def may_stand_alone(counter: Value, *, frame: str) -> bool:
    """Tell whether a counter is all that a line says: step 3, batch 3/10, but not batch 3.

    Args:
        frame: the sign at both ends of the line: `--- batch: 3 ---`, `| iterations | 3 |`
    """
    is_step, unit, has_total = counter.meaning.name == "step", counter.unit, counter.has_total
    return bool(
        vocabulary.may_stand_alone(unit)
        or (has_total and (unit in readings.BATCHES or unit in ("round", "update", "generation")))
        or (is_step and frame in junk.RULES)
        or (is_step and (has_total or frame) and vocabulary.may_stand_alone(unit.removesuffix("s")))
    )


def are_settings(counters: Sequence[Value]) -> bool:
    """Tell whether these are the numbers of all: {'epochs': 90, 'steps': 10}, epochs=90 batch=16"""
    return all(counter.unit.endswith("s") for counter in counters) or any(
        counter.unit == "epochs" and not counter.has_total for counter in counters
    )


def counted(
    name: re.Match[str] | None, before: str, match: re.Match[str], behind: str
) -> Value | None:
    """Return the counter of `after 100 steps`, `3/10 batches`, `| 100 updates |`, `Train 100:`."""
    is_end = match["total"] or behind.lstrip(" ").startswith(":")
    if (
        name
        and is_end
        and readings.is_count(match)
        and training_phases.is_training(before.strip(" \1|:-"))
    ):
        # Train: 1/3 (33%) [49/323 (15%)], train 3: 50%|#####     | 5/10
        is_epoch = behind.strip(" ") == "[" or junk.BEFORE_BAR.match(behind)
        counter = Meaning("epoch", "counter") if is_epoch else _STEP
        return Value(counter, match["number"], counter.name)
    counted = _COUNTED.match(behind) if readings.is_count(match) else None
    found = vocabulary.meaning(counted[1]) if counted is not None else None
    if counted is None or found is None or found.kind != "counter":
        return None
    number, unit = match["number"].replace(",", "") + readings.scale(match), counted[1].lower()
    # 100 steps: loss 0.51, 3 epoch. loss 0.51
    end = behind[counted.end() :]
    is_ordinal = unit in ("epoch", "step", "iter", "iteration", "episode")
    is_heading = not before.strip() and end.startswith((":", ".", ",", " |") if is_ordinal else ":")
    if _DONE.search(before) or is_heading or (counted["done"] and not match["total"]):
        return Value(found, number, unit)
    is_of_total = match["total"] and PLACE.fullmatch(before)
    is_cell = before.rstrip(" ").endswith("|") and behind[counted.end() :].startswith(" |")
    if unit in _DONE_OF_ALL and (is_of_total or is_cell):
        return Value(found, number, found.name)
    return None


def is_first_step(behind: str) -> bool:
    """Tell whether a number at the beginning of a line is its step, not a part of a sentence."""
    end = _FIRST_END.match(behind)
    if end is None or end[1] is None:
        return end is not None
    # 100 samples, accuracy 0.91
    return not (prose.is_other(end[1]) or end[1].lower() in vocabulary.COUNTED)
