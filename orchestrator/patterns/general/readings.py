"""What a line reports: its values, with names and kinds that depend on the other values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.patterns import training_phases, vocabulary
from orchestrator.patterns.general import tables
from orchestrator.patterns.vocabulary import Meaning

_MAX_NAME_CHARACTERS = 64
#: coco:, 48200/50000, train/total_loss: 2.04
BEFORE_CELL = re.compile(r"^[\w-]+[ ]?:?,[ ]*$", re.ASCII)
#: [proc 0][Train](10/500), [Train] 10/500
TAGS = re.compile(
    r"\W*(?:(?:\[[A-Za-z_]+\][ ]?)+[\[(]|\[(?i:train|val|test|eval)[a-z]*\][ ])", re.ASCII
)
_BYTE_UNITS = frozenset("MB GB MiB GiB".split())
SECONDS = frozenset("s ms sec secs seconds".split())
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
_HEADING = re.compile(
    r"([A-Za-z_][\w ]*)(?:[ ]*[:|]|[ ]-(?=[ ]))[ ]*[\[({]?[ ]*u?['\"]?$", re.ASCII
)
#: Names that would be prose beside others: best: 0.5
_KINDS = frozenset("best min max avg mean last".split())
_BEFORE_NAME = ("", *",;|:([{)]}\t\1\2")
#: As unit: an unknown name without a sign.
_UNSIGNED = "\0"
#: Behind a number that is a time or a size.
_OTHER_UNIT = re.compile(
    r"[ ]?(?:[smhd]|ms|sec(?:ond)?s?|min(?:ute)?s?|hours?|hrs?|[KMGTk]i?B?)\b(?![ ]*[:=])|[A-Za-z]"
)
#: Hyperparameters, which programs print beside numbers of epochs and steps.
_TUNED = frozenset(
    "momentum dropout gamma alpha beta beta1 beta2 eps epsilon lambda temperature tau weight_decay "
    "l2 l1 warmup min_lr max_lr base_lr clip grad_clip".split()
)
#: The names of counters that begin anew in each epoch and in each evaluation.
BATCHES = frozenset("batch batches batch_idx minibatch mini_batch".split())


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
    #: of a counter: whether its total is printed, too
    has_total: bool = False


class Reading(NamedTuple):
    """What a line reports."""

    values: Sequence[Value] = ()
    #: of the rows that follow, if this line is the header of a table
    columns: Sequence[str] = ()


def in_phase(value: Value, phase: str) -> Value:
    """Return the value with a name that says that it is of validation, if it is."""
    if phase and value.unit in BATCHES:
        # Validating batch 10/50
        return value._replace(meaning=Meaning("batch", "counter"))
    if not phase or value.meaning.kind not in ("loss", "score"):
        return value
    name = training_phases.in_phase(value.meaning.name, phase)
    return value._replace(meaning=value.meaning._replace(name=name))


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


def group(beginning: str, last: str, values: Sequence[Value]) -> str:
    """Return the word before the brackets or the colon that a value is in.

    Args:
        beginning: the text between the value before and the name of this one.
        last: the group of the value before.
        values: before this one. In `val=0.5 (a=0.2 b=0.3)` the last is the group of its parts.
    """
    if values and beginning.strip(" ") in ("(", "["):
        return values[-1].printed_name or values[-1].meaning.name
    found = _GROUP.search(beginning[-_MAX_NAME_CHARACTERS:])
    if found is not None:
        return vocabulary.snake(found[1])
    return "" if _GROUP_END.search(beginning) else last


def is_heading(beginning: str) -> bool:
    """Tell whether what follows are parts of a loss: `Loss: D 0.51 G 0.62`, `Losses | a: 0.5`."""
    heading = _HEADING.search(beginning[-_MAX_NAME_CHARACTERS:])
    found = vocabulary.last_meaning(heading[1], explicit=True) if heading is not None else None
    return found is not None and found.kind == "loss"


def of_loss(value: Value) -> Value:
    """Return a value of an unknown name as a part of the loss; others as they are."""
    is_known = vocabulary.meaning(value.meaning.name) is not None
    if value.meaning.kind != "other" or is_known or value.meaning.name in _TUNED:
        return value
    name = f"{value.meaning.name}_loss"[:_MAX_NAME_CHARACTERS]
    return value._replace(meaning=Meaning(name, "loss"), unit="")


def in_other_phase(
    name: re.Match[str], match: re.Match[str], values: Sequence[Value]
) -> Value | None:
    """Return the value of `valid` in `loss train 0.5 valid 0.6`."""
    phase = training_phases.last_phase([name["words"].rpartition(" ")[2]], None)
    if phase is None or not values or values[-1].meaning.kind not in ("loss", "score"):
        return None
    # In "loss 0.5, train: 0.9, val: 0.8" they are something else.
    if training_phases.last_phase(values[-1].printed_name.split("_"), None) is None:
        return None
    bare = values[-1].meaning.name.removeprefix("val_")
    return Value(values[-1].meaning._replace(name=bare), match["number"], match["unit"])


def is_of_phase(value: Value) -> bool:
    """Tell whether this is a decimal number that only its phase names: train 0.51 val 0.62."""
    name = value.meaning.name.removeprefix("val_")
    return "." in value.number and training_phases.last_phase([name], None) is not None


def is_step_time(value: Value) -> bool:
    is_time = "." in value.number or value.unit in SECONDS
    return value.meaning.name == "step_time" and value.explicit and is_time


def is_unnamed_time(before: str, behind: str) -> bool:
    """Tell whether a number is a duration that nothing is said about: (78.2s), | 5 ms |"""
    return (
        _AFTER_TIME.match(behind) is not None
        and _BEFORE_TIME.fullmatch(before) is not None
        and not any(map(str.isalpha, before))
    )


def named(
    found: Meaning, match: re.Match[str], unit: str, extra: str, is_explicit: bool
) -> Value | None:
    """Return the value of a number with this name; None for a count that is no loss or score."""
    number, sign = match["number"].replace(",", ""), match["unit"]
    is_accuracy = found.name.endswith("accuracy")
    if match["percent"] and match["total"] and is_accuracy:
        # Accuracy: 9834/10000 (98%)
        number, sign = match["mean"], "%"
    elif match["total"] and is_accuracy and number.isdigit():
        # 12/20 correct
        return None
    in_name = extra.strip(" ()[]")
    if not unit and training_phases.last_phase([in_name], None) is None:
        unit = in_name
    if found.kind in ("rate", "time"):
        number += scale(match)
    elif match["scale"]:
        sign = match["scale"]
    unit = unit or sign
    if found.kind == "loss" and unit in _BYTE_UNITS:
        # GPU_mem cost is 3806.5 MB
        return None
    if found.kind in ("loss", "score") and unit in SECONDS:
        # Cost: 6.79s
        return Value(Meaning("time", "time"), number, unit, is_explicit)
    if found.kind in ("loss", "score") and number.isdigit() and not unit:
        is_return = found.name in vocabulary.RETURNS or "reward" in found.name
        may_be_whole = is_accuracy or found.kind == "loss" or is_return
        if not (is_explicit and may_be_whole):
            return None
    return Value(found, number, unit or found.unit, is_explicit)


def unknown(
    name: re.Match[str], match: re.Match[str], before: str, behind: str, *, is_part: bool
) -> Value | None:
    """Return the value of a name that is none of the known ones: l_g_pix: 3.2e-03.

    Without a sign, or in a list, it must stand alone: v_recons 0.36  recons 0.38

    Args:
        is_part: it follows a heading such as "losses:".
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
    is_sign = not sign or sign in _SIGNS or (sign == "-" and (is_identifier or is_part))
    if is_glued or not is_sign or match["total"] or _OTHER_UNIT.match(behind):
        return None
    if name["words"].endswith(f" {words[0]}"):
        # train si-snr: -21.1, valid si-snr: -20.6
        printed = training_phases.in_phase(printed, name["words"].split(" ")[-2])
    if not printed or vocabulary.is_other(printed, is_identifier=is_identifier):
        return None
    if not sign and not (is_alone and len(words) == 1 and _BEHIND_CELL.match(behind)):
        return None
    number = match["number"].replace(",", "") + scale(match)
    return Value(Meaning(printed, "other"), number, _UNSIGNED if not sign else "")


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


def is_count(match: re.Match[str]) -> bool:
    # Lightning prints global_step=794.0, and tables 1.11e+04.
    number = _NO_FRACTION.sub("", match["number"].replace(",", ""))
    is_rounded = (match["scale"] or "e+" in number) and float(number + scale(match)).is_integer()
    return bool(number.isdigit() or is_rounded) and not match["unit"]


def scale(match: re.Match[str]) -> str:
    return tables.exponent(match["number"], match["scale"])
