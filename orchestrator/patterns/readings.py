"""What a line reports: its values, with names and kinds that depend on the other values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.patterns import vocabulary
from orchestrator.patterns.vocabulary import Meaning

_STEP = Meaning("step", "counter")
#: Of several counters in a line these are the step.
_MAIN_STEPS = ("global_step", "step", "num_updates")


class Value(NamedTuple):
    """A number with what it measures."""

    meaning: Meaning
    #: as float() reads it
    number: str
    #: of a counter its printed name
    unit: str = ""
    #: has a colon or the like
    explicit: bool = False
    #: "": by its unit or place
    printed_name: str = ""


class Reading(NamedTuple):
    """What a line reports."""

    values: Sequence[Value] = ()
    #: of the rows that follow, if this line is the header of a table
    columns: Sequence[str] = ()


def in_phase(value: Value, phase: str) -> Value:
    """Return the value with a name that says that it is of validation, if it is."""
    if not phase or value.meaning.kind not in ("loss", "score"):
        return value
    name = vocabulary.in_phase(value.meaning.name, phase)
    return value._replace(meaning=value.meaning._replace(name=name))


def placed(places: Sequence[str], values: Sequence[Value]) -> list[Value]:
    """Return the counters that have no name: [3/90][10/500], [1, 2000], Epoch: 3 [10/500]."""
    named = {value.meaning.name for value in values}
    if "step" in named:
        missing = ["batch"] if "epoch" in named else []
    else:
        missing = ["step"] if "epoch" in named else ["epoch", "step"]
    if len(places) == 1:
        missing = missing[-1:]
    return [
        Value(Meaning(name, "counter"), number, name)
        for name, number in zip(missing, places, strict=False)
    ]


def with_one_step(values: Sequence[Value]) -> list[Value]:
    """Return the values with one step: of `iter 40 step 10` the first is stored as iter."""
    steps = [value for value in values if value.meaning == _STEP]
    main = next((step for name in _MAIN_STEPS for step in steps if step.unit == name), None)
    main = main or next(iter(steps), None)
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


def with_own_names(values: Sequence[Value]) -> list[Value]:
    """Return the values with a name that is taken as it is printed: loss=3.1, reduced_loss=3.09."""
    taken: set[str] = set()
    own: list[Value] = []
    for value in values:
        name = value.meaning.name
        if name in taken and value.printed_name:
            name = value.printed_name
            value = value._replace(meaning=value.meaning._replace(name=name))
        taken.add(name)
        own.append(value)
    return own


def with_times(values: Sequence[Value]) -> list[Value]:
    """Return the values with a plain time as that of the step or the epoch."""
    names = {value.meaning.name for value in values}
    of = "step_time" if "step" in names else "epoch_time" if "epoch" in names else ""
    is_known = not of or of in names
    return [
        value._replace(meaning=Meaning(of, "time")) if value.meaning.name == "time" else value
        for value in values
        if not (is_known and value.meaning.name == "time")
    ]
