"""Reads metrics from the lines of any program: known names and units with numbers beside them.

A line is cut at its numbers. The text before a number ends in its name (`loss: 0.5`, `loss 0.5`),
the text behind it begins with its unit (`135.5 images/sec`) or its name (`11.8750 loss`), or its
place says what it is (`Epoch [3][10/500]`). Lines with much other text are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.patterns import metric_names, regexes, tables, vocabulary
from orchestrator.patterns.vocabulary import Meaning

#: How many words that are neither names nor usual beside them a line of metrics has at most: with
#: neither a counter nor a sign such as a colon, with one of them, and with both.
_MAX_OTHER_WORDS = (1, 4, 8)
_MAX_NAME_CHARACTERS = 64
#: Longer lines are not read.
_MAX_CHARACTERS = 4000

_NUMBER = rf"(?:{regexes.THOUSANDS}|{regexes.NUMBER})"
_CLOCK = "[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?"
# Text that contains digits and no metrics: what a logger prints first, progress bars, addresses,
# places in code, dates, durations, paths, hexadecimal numbers, versions, times, options.
_JUNK = re.compile(
    rf"""
      ^.{{0,80}}?\b(?:INFO|DEBUG)\b[\]:)]*
    | ^[IWEF]?[0-9]{{4}}[ ]{_CLOCK}[ ]+[0-9]+
    | ^\W*\[[^\[\]]*{_CLOCK}[^\[\]]*\]
    | (?<![0-9])[0-9]+%\|[^|]*\|
    | (?<!\w)[A-Za-z][\w+.-]{{1,20}}://\S*
    | (?<![\w.-])[\w.-]+\.py:[0-9]+(?:\[[0-9]+\])?
    | [0-9]{{1,2}}/[0-9]{{1,2}}[ T-]{_CLOCK}
    | (?<![\w.])[0-9]+[ ](?:days?|hours?|hrs?|minutes?|mins?)\b(?:[ ,]*(?:and[ ])?[0-9.]+[ ]\w+)?
    | (?<![\w.%)\]])(?:\.{{0,2}}|~)/[\w.=+-]+(?:/\S*)?
    | (?<![\w./-])[\w.-]++(?:/[\w.-]++)++(?:(?<=\.[a-z]{{2}})|(?<=\.[a-z]{{3}})|(?<=\.[a-z]{{4}}))
    | (?<!\w)0x[0-9A-Fa-f]+
    | (?<![\w.])[0-9]{{1,4}}(?:[-_][0-9]{{1,4}}){{2,}}(?:[ T_]?[0-9]+:[0-9.:,+Z]*)?
    | (?<![\w.])[0-9]+/[0-9]+/[0-9]+(?![\w.])
    | (?<![\w.])v?(?:[0-9]+\.){{2,}}[0-9]\w*(?:[+-]\w+)*
    | (?:\b[0-9]+[ ]days?,?[ ]?)?(?<![\w.:])[0-9]{{1,3}}:[0-9]{{2}}(?::[0-9]{{2}})?(?:[.,][0-9]+)?
        (?![\w.])(?![ ]*[:=])
    | (?<![\w.])[0-9]+(?:d|h|hr|hrs|min|mins|m)(?:[ :,]*[0-9.]+(?:h|m|s|min|mins|sec|secs)\b)+
    | (?<!\S)--?[A-Za-z][\w-]*(?:[= ][-+]?[0-9][\w.]*)?
    """,
    re.ASCII | re.VERBOSE,
)
#: In the place of junk: neither a word nor a sign between a name and its number.
_GAP = "\x01"
_GLUED_COUNTER = re.compile(
    r"\b(epoch|step|iter|iteration|batch|ep)[-_]?(?=[0-9]+\b(?![.]\w))", re.IGNORECASE
)
_SPREAD_RATE = re.compile(r"(?<=[a-z]) / (?=s)")
# 0.5, 10/500, 98%, 0.5 (0.6), 9834/10000 (98%), 135.5 +/- 0.3
_VALUE = re.compile(
    rf"""
    (?<![\w.@/])(?<![A-Za-z_]-)
    (?P<number>{_NUMBER})(?![0-9]|[.:][0-9]|,[0-9]{{3}}(?![0-9]))
    (?P<total>[ ]?/[ ]*(?:[0-9]+(?:,[0-9]{{3}})*|Unknown|\?))?
    (?P<unit>%?)
    (?:[ ]?\([ ]*(?P<mean>{_NUMBER})[ ]*(?P<percent>%?)[ ]*\))?
    (?:[ ]?(?:\+/?-|\u00b1)[ ]?[0-9.]+)?
    """,
    re.ASCII | re.VERBOSE,
)
_WORD = r"[A-Za-z_][\w@]*+(?:[./@#-]+[A-Za-z0-9_][\w@]*+)*(?:'s|%|[.](?=[ ]))?"
# The name at the end of the text before a number: "loss": tensor([  or  time per step (ms) |
_NAME = re.compile(
    rf"""
    (?:^|(?<=[^\w./@-]))(?P<words>(?:{_WORD}[ ]){{0,5}}{_WORD})
    (?P<extra>[ ]?[(\[][A-Za-z/%][^()\[\]:=]{{0,30}}[)\]])?
    ["']?(?P<sign>[ ]*(?:::?|==?|->|=>|\u2192)[ ]*|[ ]*[|,;\t\#][ ]*|[ ]+(?:is[ ]+|of[ ]+)?|)
    (?:\([0-9]+\)|(?:torch\.)?tensor|np\.\w+|array)?[\[({{"'\#<$~ ]{{0,4}}$
    """,
    re.ASCII | re.VERBOSE,
)
#: Between name and number in other texts, too.
_WEAK_SIGNS = frozenset(("", "|", ",", ";", "\t", "#", "of"))
_UNIT = r"[A-Za-z\u00b5]\w*+(?:[ ]?/[ ]?\(?[A-Za-z]+\)?|[ ]per[ ][A-Za-z]+|[ ]a[ ]second)*+"
# Behind a blank it may also be the name of the next number.
_BEHIND = re.compile(rf"({_UNIT}|/s(?:ec)?\b)|[ ]({_UNIT})(?![\w/]|[ ]*[:=]|[ ]per[ ])", re.ASCII)
_NAME_BEHIND = re.compile(rf"[ ]((?:{_WORD}[ ]){{0,2}}{_WORD})(?=[ ]*(?:[,;|)\]]|$))", re.ASCII)
_SIZES = frozenset(
    "s ms sec secs seconds second min us ns % G M GB MB GiB MiB KB KiB K k TFLOPs it x h m".split()
)
_SECONDS = frozenset("s ms sec secs seconds".split())
#: The text around an integer whose place says what it is.
_PLACE = re.compile(r"\W*", re.ASCII)
_WORDS = re.compile(r"[A-Za-z][A-Za-z_]+")
#: Words beside metrics that are no prose.
_USUAL = frozenset(
    "learning eta elapsed remaining left time total gpu gpus rank node info train training val "
    "valid validation test testing eval evaluation dev set results result metrics summary stats on "
    "at in "
    "performance lr max min avg mean std best cur current per ms sec secs seconds min mins hours "
    "hour hrs days mb gb gib mib samples images tokens steps batches examples epoch step "
    "iter".split()
)
#: In lines about other things than the progress of the training.
_OTHER_LINE = re.compile(
    r"\b(?:load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:e|ed|ing)|sav(?:e|ed|ing)|\w*warn(?:ing)?|"
    r"deprecat\w*|config(?:uration)?|namespace|arguments?|hyperparameters|usage|expected|"
    r"download\w*|translated|generated?|inference)\b|^Traceback|^\s*File |\?(?:it|s)/|"
    r"(?-i:[a-z]Error\b)",
    re.IGNORECASE,
)
#: Progress bars count many things; those without a loss are left to the pattern of tqdm.
_BAR = re.compile(r"[0-9]%\||\[[0-9:]+<")
#: Names of counters that may stand alone: epochs = 90 is a setting.
_BARE = frozenset("epoch step iter iteration global_step total_timesteps".split())
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


def read(text: str, columns: Sequence[str] = ()) -> Reading | None:
    """Return what a line reports; None if it is not a line of metrics.

    Args:
        text: the line without its prefix.
        columns: of the table that the line may be a row of.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    if columns:
        cells, bar = tables.row(text, columns)
        if cells:
            row = [Value(*cell) for cell in cells]
            return Reading(_with_times([*row, *_values(_without_junk(bar))]))
    plain = _without_junk(text)
    if not _VALUE.search(plain):
        names = tables.header(text)
        return Reading(columns=names) if names else None
    if _OTHER_LINE.search(plain):
        return None
    values = _values(plain)
    is_other_bar = _BAR.search(text) and not any(
        value.meaning.kind in ("loss", "score") for value in values
    )
    return Reading(values) if values and not is_other_bar else None


def _without_junk(text: str) -> str:
    return _SPREAD_RATE.sub("/", _GLUED_COUNTER.sub(r"\1 ", _JUNK.sub(_GAP, text)))


def _values(text: str) -> list[Value]:
    """Return the values of a text without junk; [] if it is not about metrics."""
    matches = list(_VALUE.finditer(text))
    values: list[Value] = []
    places: list[str] = []
    other_words, phase, end = 0, "", 0
    at_step: Meaning | None = None
    for index, match in enumerate(matches):
        before = text[end : match.start()]
        end = match.end()
        behind = text[end : matches[index + 1].start() if index + 1 < len(matches) else None]
        name = _name(before, is_first=index == 0)
        phase = vocabulary.last_phase(_WORDS.findall(before), phase)
        other_words += _other_words(_prose(before, name))
        if name is None and at_step is not None and before.strip() in (":", "="):
            value: Value | None = Value(at_step, match["number"], match["unit"], explicit=True)
        else:
            value = _value(name, match, behind)
        at_step = _metric_at_step(name)
        if value is not None:
            values.append(_in_phase(value, phase))
            if value.unit and behind.lstrip(" ").startswith(value.unit):
                # A unit is not the name of the next number: 1445 tok/s; 19 s.
                end += behind.index(value.unit) + len(value.unit)
        elif (
            _is_count(match)
            and not behind[:1].isalpha()
            and (_PLACE.fullmatch(before) or (match["total"] and name is not None))
        ):
            start = match.start()
            is_in_brackets = text.rfind("[", 0, start) > text.rfind("]", 0, start)
            is_first = not values and (is_in_brackets or behind[:1] in (":", "|", " "))
            is_whole = is_in_brackets or not behind.startswith("]")
            if is_whole and (match["total"] or (is_first and not behind.isspace())):
                places.append(match["number"].replace(",", ""))
    other_words += _other_words(text[end:])
    kinds = {value.meaning.kind for value in values}
    is_strong = bool(kinds & vocabulary.STRONG)
    if is_strong or "time" in kinds:
        values = [*_placed(places, values), *values]
    counters = {value.meaning.name for value in values if value.meaning.kind == "counter"}
    is_explicit = any(value.explicit for value in values if value.meaning.kind != "counter")
    if kinds == {"counter"} and len(counters) == 1:
        is_metrics = other_words == 0 and all(value.unit in _BARE for value in values)
    elif is_strong or len(counters) > 1:
        is_metrics = other_words <= _MAX_OTHER_WORDS[bool(counters) + is_explicit]
    else:
        is_metrics = bool(counters) and other_words < 2
    return _with_times(_with_own_names(_with_one_step(values))) if is_metrics else []


def _name(before: str, *, is_first: bool) -> re.Match[str] | None:
    """Return the name at the end of the text before a number."""
    name = _NAME.search(before[-_MAX_NAME_CHARACTERS:])
    if name is not None and name["sign"].strip(" ") in (",", ";", "|") and not is_first:
        # In "3438 src tok/s; 3517 tgt tok/s" it is the name of the number before.
        is_of_number_before = not before[: len(before) - len(name[0])].strip()
        return None if is_of_number_before else name
    return name


def _metric_at_step(name: re.Match[str] | None) -> Meaning | None:
    """Return the metric whose value follows the step: `Minibatch loss at step 3000: 58.9`."""
    metric, _, _ = name["words"].partition(" at ") if name else ("", "", "")
    found = vocabulary.last_meaning(metric) if metric else None
    return found if found is not None and found.kind in ("loss", "score") else None


def _is_count(match: re.Match[str]) -> bool:
    # Lightning prints global_step=794.0, and tables 1.11e+04.
    number = match["number"].replace(",", "").removesuffix(".0")
    is_rounded = "e+" in number and float(number).is_integer()
    return (number.isdigit() or is_rounded) and not match["unit"]


def _prose(before: str, name: re.Match[str] | None) -> str:
    """Return the text before a number without its name: without a sign that is the last word."""
    if name is None:
        return before
    start = len(before) - len(name[0])
    if name["sign"].strip(" ") in _WEAK_SIGNS:
        start += name.end("words") - name.start() - len(name["words"].rpartition(" ")[2])
    return before[:start]


def _other_words(text: str) -> int:
    """Return the number of words that are neither names of metrics nor usual beside them."""
    words = _WORDS.findall(text)
    return sum(w.lower() not in _USUAL and vocabulary.meaning(w) is None for w in words)


def _value(name: re.Match[str] | None, match: re.Match[str], behind: str) -> Value | None:
    """Return the value of a number by the name before it, its unit or the name behind it."""
    number = match["number"].replace(",", "")
    found_unit = _BEHIND.match(behind)
    unit = (found_unit[1] or found_unit[2]) if found_unit else ""
    by_unit = vocabulary.unit_meaning(unit)
    if unit and by_unit is None and not behind.startswith(" "):
        glued = vocabulary.meaning(unit)
        if glued is not None and glued.kind == "counter" and _is_count(match):
            return Value(glued, number, glued.name)
        if unit not in _SIZES:
            # A part of a word, such as 3d or 7B.
            return None
    is_explicit = name is not None and name["sign"].strip(" ") not in _WEAK_SIGNS
    found = vocabulary.last_meaning(name["words"], explicit=is_explicit) if name else None
    if name is not None and found is not None:
        if found.kind == "counter":
            if by_unit is None and _is_count(match):
                printed = metric_names.snake(name["words"].split(" ")[-1])
                return Value(found, number, printed, is_explicit)
        elif by_unit is None or (is_explicit and found.kind not in ("loss", "score")):
            is_unit = by_unit is not None or unit in _SIZES
            value = _named(found, match, unit if is_unit else "", name["extra"] or "", is_explicit)
            return value and value._replace(printed_name=metric_names.snake(name["words"]))
    if by_unit is not None:
        return Value(by_unit, number, unit, explicit=by_unit.kind == "rate")
    name_behind = _NAME_BEHIND.match(behind)
    found = vocabulary.last_meaning(name_behind[1]) if name_behind else None
    if name_behind is None or found is None:
        return None
    if found.kind == "counter" and _is_count(match) and name_behind[1].lower() in _BARE:
        return Value(found, number, name_behind[1].lower())
    is_metric = found.kind in ("loss", "score") and not number.isdigit()
    printed = metric_names.snake(name_behind[1])
    is_value = is_metric or found.kind == "rate"
    return Value(found, number, found.unit, printed_name=printed) if is_value else None


def _named(
    found: Meaning, match: re.Match[str], unit: str, extra: str, is_explicit: bool
) -> Value | None:
    """Return the value of a number with this name; None for a count that is no loss or score."""
    number, sign = match["number"].replace(",", ""), match["unit"]
    is_accuracy = found.name.endswith("accuracy")
    if match["percent"] and match["total"] and is_accuracy:
        # Accuracy: 9834/10000 (98%)
        number, sign = match["mean"], "%"
    in_name = extra.strip(" ()[]")
    if not unit and vocabulary.last_phase([in_name], None) is None:
        unit = in_name
    unit = unit or sign
    if found.kind in ("loss", "score") and unit in _SECONDS:
        # Cost: 6.79s
        return Value(Meaning("time", "time"), number, unit, is_explicit)
    if found.kind in ("loss", "score") and number.isdigit() and not unit:
        may_be_whole = is_accuracy or found.kind == "loss" or "reward" in found.name
        if not (is_explicit and may_be_whole):
            return None
    return Value(found, number, unit or found.unit, is_explicit)


def _in_phase(value: Value, phase: str) -> Value:
    """Return the value with a name that says that it is of validation, if it is."""
    if value.meaning.kind not in ("loss", "score"):
        return value
    name = metric_names.in_phase(value.meaning.name, phase)
    return value._replace(meaning=value.meaning._replace(name=name))


def _placed(places: Sequence[str], values: Sequence[Value]) -> list[Value]:
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


def _with_one_step(values: Sequence[Value]) -> list[Value]:
    """Return the values with one step: of `iter 40 step 10` the first is stored as iter."""
    steps = [value for value in values if value.meaning == _STEP]
    main = next((step for name in _MAIN_STEPS for step in steps if step.unit == name), None)
    main = main or next(iter(steps), None)
    return [
        value._replace(meaning=Meaning(value.unit, "counter"))
        if value.meaning == _STEP and value is not main
        else value
        for value in values
        if main is None or value is main or value.meaning != _STEP or value.number != main.number
    ]


def _with_own_names(values: Sequence[Value]) -> list[Value]:
    """Return the values with a name that is taken as it is printed: loss=3.1, reduced_loss=3.09."""
    taken: set[str] = set()
    own: list[Value] = []
    for value in values:
        name = value.meaning.name
        if name in taken and value.printed_name:
            name = value.printed_name
        taken.add(name)
        own.append(value._replace(meaning=value.meaning._replace(name=name)))
    return own


def _with_times(values: Sequence[Value]) -> list[Value]:
    """Return the values with a plain time as that of the step or the epoch."""
    names = {value.meaning.name for value in values}
    of = "step_time" if "step" in names else "epoch_time" if "epoch" in names else ""
    is_known = not of or of in names
    return [
        value._replace(meaning=Meaning(of, "time")) if value.meaning.name == "time" else value
        for value in values
        if not (is_known and value.meaning.name == "time")
    ]
