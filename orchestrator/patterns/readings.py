"""What a line reports: its values, with names and kinds that depend on the other values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.patterns import tables, vocabulary
from orchestrator.patterns.vocabulary import Meaning

_MAX_NAME_CHARACTERS = 64
_AT = re.compile(
    r"([A-Za-z_][\w ]*?)(?: \([a-z ]+\))?(?: (?:at|@|after|in|on|for|over|of)(?: |$)| ?\((?=\w+ $)"
    r"| (?=(?i:epoch|step|iter|iteration|batch) $))"
)
#: Between a step and the value of the metric named before it: loss at step 10: 0.5
AFTER_STEP = re.compile(r"\)?(?: \w+){0,2}[ ]*(?::|=|is|was)[ ]*")
#: Between the step and its loss: Train loss 100 0.48
_BEFORE_LOSS = re.compile(r"\]?[ ]*[:=][ ]*|[ ]+")
#: coco:, 48200/50000, train/total_loss: 2.04
BEFORE_CELL = re.compile(r"^[\w-]+[ ]?:?,[ ]*$", re.ASCII)
#: Before the number of steps that are done: after 100 steps
_DONE = re.compile(
    r"\b(?:after|trained|completed|processed|finished)[ ](?:for[ ])?$", re.IGNORECASE
)
_COUNTED = re.compile(
    r"[ ]([a-z]+)\b(?P<done>[ ](?:processed|done|completed|finished)\b)?", re.IGNORECASE
)
#: What is counted up to a total.
_DONE_OF_ALL = frozenset("steps iters iterations updates batches epochs".split())
#: What stands behind a number at the beginning of a line that is its step.
FIRST_END = re.compile(
    r"[:|,>}]|[ ]+[0-9.]+[ ]?(?:ms|s|sec)\b|[ ]++(?![A-Za-z]|[-+]?[0-9.])|[ ]+([A-Za-z]\w+)"
)
#: The text around an integer whose place says what it is.
PLACE = re.compile(r"\W*", re.ASCII)
_STEP = Meaning("step", "counter")
UNNAMED_TIME = Meaning("unnamed_time", "time")
_PLAIN = frozenset(("time", UNNAMED_TIME.name))
#: Larger times are seconds since 1970.
_MAX_SECONDS = 1e8
#: A time in these units is that of the run so far, and not of a step.
_LONG_UNITS = ("min", "h")
#: Behind a duration that has no name: (78.2s), | 5 ms |
_AFTER_TIME = re.compile(r"[ ]?(?:ms|s|sec|secs|seconds)[ ]?(?:[)\]|,]|-[ ]|$)")
_BEFORE_TIME = re.compile(r"(?:^|.*[(|\[,]|.*[ ]-)[ ]*", re.DOTALL)
_NO_FRACTION = re.compile(r"\.0*$")
_SIGNS = frozenset((":", "=", "::", "=="))
#: Behind a number in a list of names and numbers.
_BEHIND_CELL = re.compile(r"[ ]*(?:[,;|\])}]|$)|[ ]{2}|\t|[ ][A-Za-z_]\w*[ ]?[:=]?[ ]*$", re.ASCII)
_GROUP = re.compile(r"([A-Za-z][\w-]*)[ ]*[\[({:|\])][\s\[({:|\]),-]*$", re.ASCII)
_GROUP_END = re.compile(r"[\])}|;]")
_HEADING = re.compile(r"([A-Za-z_][\w ]*)[ ]*:[ ]*[\[({]?[ ]*$", re.ASCII)
#: Names that would be prose beside others: best: 0.5
_KINDS = frozenset("best min max avg mean last".split())
_BEFORE_NAME = ("", *",;|:([{)]}\t\1\2")
#: As unit: an unknown name without a sign.
_UNSIGNED = "\0"
#: Behind a number that is a time or a size.
_OTHER_UNIT = re.compile(
    r"[ ]?(?:[smhd]|ms|secs?|seconds?|mins?|minutes?|hours?|hrs?|[kKMGT]i?B?)\b|[A-Za-z]"
)
#: Hyperparameters, which programs print beside numbers of epochs and steps.
_TUNED = frozenset(
    "momentum dropout gamma alpha beta beta1 beta2 eps epsilon lambda temperature tau weight_decay "
    "l2 l1 warmup min_lr max_lr base_lr clip grad_clip".split()
)
#: The names of counters that begin anew in each epoch and in each evaluation.
_BATCHES = frozenset("batch batches batch_idx minibatch mini_batch".split())
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
    #: the word before the brackets or the colon that it is behind: test in [test] loss: 0.5
    group: str = ""


class Reading(NamedTuple):
    """What a line reports."""

    values: Sequence[Value] = ()
    #: of the rows that follow, if this line is the header of a table
    columns: Sequence[str] = ()


def in_phase(value: Value, phase: str) -> Value:
    """Return the value with a name that says that it is of validation, if it is."""
    if phase and value.unit in _BATCHES:
        # Validating batch 10/50
        return value._replace(meaning=Meaning("batch", "counter"))
    if not phase or value.meaning.kind not in ("loss", "score"):
        return value
    name = vocabulary.in_phase(value.meaning.name, phase)
    return value._replace(meaning=value.meaning._replace(name=name))


def placed(
    places: Sequence[str], values: Sequence[Value], *, is_evaluation: bool = False
) -> list[Value]:
    """Return the counters that have no name: [3/90][10/500], [1, 2000], Epoch: 3 [10/500].

    Args:
        is_evaluation: the last counter is that of an evaluation, and not the step of the training.
    """
    named = {value.meaning.name for value in values}
    if "step" in named:
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
    """Return the values with other names where a name is taken.

    That is the name with its group, as in `loss[loss=0.5] tot_loss[loss=0.6]`, or as it is printed,
    as in `loss=3.1, reduced_loss=3.09`.
    """
    taken: set[tuple[str, str]] = set()
    own: list[Value] = []
    for value in values:
        # Steps/second: 0.5, Examples/second: 16 are both throughput.
        unit = value.unit if value.meaning.kind == "rate" else ""
        name, printed = value.meaning.name, value.printed_name
        if (name, unit) in taken:
            others = (_in_group(value), printed)
            name = next((each for each in others if each and (each, unit) not in taken), name)
        taken.add((name, unit))
        own.append(value._replace(meaning=value.meaning._replace(name=name)))
    return own


def _in_group(value: Value) -> str:
    if not value.group or value.meaning.kind not in ("loss", "score", "other"):
        return ""
    name = value.printed_name or value.meaning.name
    is_name = value.group == name or value.group.endswith(f"_{name}")
    return value.group if is_name else f"{value.group}_{name}"[:_MAX_NAME_CHARACTERS]


def with_times(values: Sequence[Value]) -> list[Value]:
    """Return the values with a plain time as that of the step, an evaluation's or the epoch.

    A duration without a name is that of the step only in milliseconds: others may be of the run.
    """
    names = {value.meaning.name for value in values}
    counters = {"step": "step_time", "batch": "val_step_time", "epoch": "epoch_time"}
    of = next((time for name, time in counters.items() if name in names), "")
    is_known = not of or of in names
    return [
        value._replace(meaning=Meaning(of, "time")) if value.meaning.name in _PLAIN else value
        for value in values
        if value.meaning.name not in _PLAIN
        or not (
            is_known
            or float(value.number) > _MAX_SECONDS
            or (of != "epoch_time" and value.unit.startswith(_LONG_UNITS))
            or (value.meaning == UNNAMED_TIME and (value.unit == "ms") != (of != "epoch_time"))
        )
    ]


def is_batch_time(name: re.Match[str], match: re.Match[str]) -> bool:
    """Tell whether a batch is a time with its mean behind it: Batch 0.818 (3.887)."""
    is_batch = name["words"].rpartition(" ")[2].lower() == "batch"
    return is_batch and "." in match["number"] and "." in (match["mean"] or "")


def group(beginning: str, last: str) -> str:
    """Return the word before the brackets or the colon that a value is in.

    Args:
        beginning: the text between the value before and the name of this one.
        last: the group of the value before.
    """
    found = _GROUP.search(beginning[-_MAX_NAME_CHARACTERS:])
    if found is not None:
        return vocabulary.snake(found[1])
    return "" if _GROUP_END.search(beginning) else last


def is_heading(beginning: str) -> bool:
    """Tell whether what follows are parts of a loss: `Loss: D 0.51 G 0.62`."""
    heading = _HEADING.search(beginning[-_MAX_NAME_CHARACTERS:])
    found = vocabulary.last_meaning(heading[1], explicit=True) if heading is not None else None
    return found is not None and found.kind == "loss"


def of_loss(value: Value) -> Value:
    """Return a value of an unknown name as a part of the loss."""
    name = f"{value.meaning.name}_loss"[:_MAX_NAME_CHARACTERS]
    return value._replace(meaning=Meaning(name, "loss"), unit="")


def in_other_phase(
    name: re.Match[str], match: re.Match[str], values: Sequence[Value]
) -> Value | None:
    """Return the value of `valid` in `loss train 0.5 valid 0.6`."""
    phase = vocabulary.last_phase([name["words"].rpartition(" ")[2]], None)
    if phase is None or not values or values[-1].meaning.kind not in ("loss", "score"):
        return None
    # In "loss 0.5, train: 0.9, val: 0.8" they are something else.
    if vocabulary.last_phase(values[-1].printed_name.split("_"), None) is None:
        return None
    bare = values[-1].meaning.name.removeprefix("val_")
    return Value(values[-1].meaning._replace(name=bare), match["number"], match["unit"])


def is_of_phase(value: Value) -> bool:
    """Tell whether this is a decimal number that only its phase names: train 0.51 val 0.62."""
    name = value.meaning.name.removeprefix("val_")
    return "." in value.number and vocabulary.last_phase([name], None) is not None


def is_unnamed_time(before: str, behind: str) -> bool:
    """Tell whether a number is a duration that nothing is said about: (78.2s), | 5 ms |"""
    return (
        _AFTER_TIME.match(behind) is not None
        and _BEFORE_TIME.fullmatch(before) is not None
        and not any(map(str.isalpha, before))
    )


def unknown(name: re.Match[str], match: re.Match[str], before: str, behind: str) -> Value | None:
    """Return the value of a name that is none of the known ones: l_g_pix: 3.2e-03.

    Without a sign, or in a list, it must stand alone: v_recons 0.36  recons 0.38
    """
    sign = name["sign"].strip(" \t")
    beginning = before[: len(before) - len(name[0])]
    is_alone = beginning[-2:] == "  " or beginning.rstrip(" ")[-1:] in _BEFORE_NAME
    words = name["words"].split(" ")
    is_glued = not beginning and before[:1].isalpha() and match.start() > len(before)
    if not is_alone or len(words) > 3:
        words = words[-1:]
    printed = vocabulary.snake(" ".join(words))
    is_identifier = len(words) == 1 and ("_" in printed or printed in _KINDS)
    is_sign = not sign or sign in _SIGNS or (sign == "-" and is_identifier)
    if is_glued or not is_sign or match["total"] or _OTHER_UNIT.match(behind):
        return None
    if not printed or vocabulary.is_other(printed, is_identifier=is_identifier):
        return None
    if not sign and not (is_alone and len(words) == 1 and _BEHIND_CELL.match(behind)):
        return None
    return Value(Meaning(printed, "other"), match["number"], _UNSIGNED if not sign else "")


def without_settings(values: Sequence[Value], *, is_strong: bool) -> list[Value]:
    """Return the values without names that are unknown and may be settings or prose.

    Args:
        is_strong: the values contain a loss, a score or a rate.
    """
    return [
        value._replace(unit="") if value.unit == _UNSIGNED else value
        for value in values
        if is_strong
        or (
            value.unit != _UNSIGNED
            and (value.meaning.kind != "other" or value.meaning.name not in _TUNED)
        )
    ]


def of_evaluation(values: Sequence[Value]) -> list[Value]:
    """Return the values of an evaluation's progress bar: its steps are not the training's."""
    return [
        value._replace(meaning=Meaning("batch", "counter"))
        if value.meaning.name == "step"
        else value._replace(meaning=value.meaning._replace(name=f"val_{value.meaning.name}"))
        if value.meaning.kind in ("rate", "time")
        else value
        for value in values
    ]


def last_is_epoch(values: Sequence[Value]) -> bool:
    return bool(values) and values[-1].meaning.name == "epoch"


def is_step_of_loss(
    name: re.Match[str], match: re.Match[str], behind: str, matches: Sequence[re.Match[str]]
) -> bool:
    """Tell whether this is the step of `Train loss 100 0.48`, not the second of several losses."""
    if len(matches) < 2 or name["sign"].strip(" ") or not match["number"].isdigit():
        return False
    found = vocabulary.last_meaning(name["words"])
    return (
        found is not None
        and found.kind == "loss"
        and match[0] == match["number"]
        and "." in matches[1]["number"]
        and _BEFORE_LOSS.fullmatch(behind) is not None
        # loss 1 0.53 loss 2 0.62
        and match.string.lower().count("loss") == 1
    )


def metric_at_step(before: str) -> Meaning | None:
    """Return the metric whose value follows the step: `Minibatch loss at step 3000: 58.9`."""
    metric = _AT.search(before[-_MAX_NAME_CHARACTERS:])
    found = vocabulary.last_meaning(metric[1]) if metric else None
    return found if found is not None and found.kind in ("loss", "score") else None


def counted(
    name: re.Match[str] | None, before: str, match: re.Match[str], behind: str
) -> Value | None:
    """Return the counter of `after 100 steps`, `3/10 batches`, `| 100 updates |`, `Train 100:`."""
    is_end = match["total"] or behind.lstrip(" ").startswith(":")
    if name and is_end and is_count(match) and vocabulary.is_training(before.strip(" \1|:-")):
        # Train: 1/3 (33%) [49/323 (15%)]
        counter = Meaning("epoch", "counter") if behind.strip(" ") == "[" else _STEP
        return Value(counter, match["number"], counter.name)
    counted = _COUNTED.match(behind) if is_count(match) else None
    found = vocabulary.meaning(counted[1]) if counted is not None else None
    if counted is None or found is None or found.kind != "counter":
        return None
    number, unit = match["number"].replace(",", "") + scale(match), counted[1].lower()
    if _DONE.search(before) or (counted["done"] and not match["total"]):
        return Value(found, number, unit)
    is_of_total = match["total"] and PLACE.fullmatch(before)
    is_cell = before.rstrip(" ").endswith("|") and behind[counted.end() :].startswith(" |")
    if unit in _DONE_OF_ALL and (is_of_total or is_cell):
        return Value(found, number, found.name)
    return None


def is_count(match: re.Match[str]) -> bool:
    # Lightning prints global_step=794.0, and tables 1.11e+04.
    number = _NO_FRACTION.sub("", match["number"].replace(",", ""))
    is_rounded = (match["scale"] or "e+" in number) and float(number + scale(match)).is_integer()
    return bool(number.isdigit() or is_rounded) and not match["unit"]


def scale(match: re.Match[str]) -> str:
    return tables.SCALES[match["scale"]] if match["scale"] else ""
