"""Reads metrics from the lines of any program: known names and units with numbers beside them.

A line is cut at its numbers. The text before a number ends in its name (`loss: 0.5`, `loss 0.5`),
the text behind it begins with its unit (`135.5 images/sec`) or its name (`11.8750 loss`), or its
place says what it is (`Epoch [3][10/500]`). Lines with much other text are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.patterns import junk, prose, readings, regexes, tables, vocabulary
from orchestrator.patterns.readings import Reading, Value
from orchestrator.patterns.vocabulary import Meaning

#: How many words that are neither names nor usual beside them a line of metrics has at most: with
#: neither a counter nor a sign such as a colon, with one of them, and with both.
_MAX_OTHER_WORDS = (1, 4, 8)
_MAX_NAME_CHARACTERS = 64
#: Longer lines are not read.
_MAX_CHARACTERS = 4000

_NUMBER = rf"(?:{regexes.THOUSANDS}|{regexes.NUMBER})"
# 0.5, 10/500, 98%, 1.2M, 0.5 (0.6), 9834/10000 (98%), 135.5 +/- 0.3
_VALUE = re.compile(
    rf"""
    (?<![\w.@/])(?<![A-Za-z_]-)
    (?P<number>{_NUMBER})(?![0-9]|[.:][0-9]|,[0-9]{{3}}(?![0-9]))(?P<scale>[kKMB](?!\w))?
    (?P<total>[ ]?/[ ]*(?:[0-9]+(?:,[0-9]{{3}})*[kKMB]?|Unknown|\?)(?![0-9]|\.[0-9]))?
    (?P<unit>%?)
    (?:[ ]?\([ ]*(?P<mean>{_NUMBER})[ ]*(?P<percent>%?)[ ]*\))?
    (?:[ ]?(?:\+/?-|\u00b1)[ ]?[0-9.]+)?
    """,
    re.ASCII | re.VERBOSE,
)
# A longer word with a dot ends a sentence.
_WORD = (
    r"(?:[A-Za-z]{1,5}[.](?=[ :=])|"
    r"[A-Za-z_][\w@]*+(?:[./@#-]++[A-Za-z0-9_][\w@]*+)*+(?:'s|%)?+)"
)
#: What a number is wrapped in: np.float32(0.5), tf.Tensor(0.5, shape=()
_WRAPPER = r"(?:[\w.]*(?:[Tt]ensor|[Aa]rray)|j?np\.\w+)\("
_VERB = "(?:is|was|of)(?:[ ]+|(?=[ ]*[:=]))"
# The name at the end of the text before a number: "loss": tensor([  or  time per step (ms) |
_NAME = re.compile(
    rf"""
    (?:^|(?<=[^\w./@-]))(?P<words>(?:{_WORD}[ ]){{0,5}}(?!{_WRAPPER}|{_VERB}){_WORD})
    (?P<extra>[ ]?[(\[][A-Za-z/%][^()\[\]:=]{{0,30}}[)\]])?
    ["']?(?P<sign>[ ]*(?:[ ](?:is|was)[ ]*)?\#?(?:::?|==?|->|=>|\u2192)[ ]*
        |[ ]*[|,;\t\#][ ]*|[ ]-[ ]|[ ]+(?:{_VERB})?|)
    (?:\([0-9]+\)|{_WRAPPER})?[\[({{"'\#<~ ]{{0,4}}$
    """,
    re.ASCII | re.VERBOSE,
)
#: Between name and number in other texts, too.
_WEAK_SIGNS = frozenset(("", "|", ",", ";", "\t", "#", "of", "-"))
_UNIT = (
    r"[A-Za-z\u00b5]\w*+"
    r"(?:[ ]?/[ ]?(?:[A-Za-z]+|\([A-Za-z]+\))|[ ]per[ ][A-Za-z]+|[ ]a[ ]second)*+"
)
# Behind a blank it may also be the name of the next number.
_BEHIND = re.compile(
    rf"({_UNIT}|/s(?:ec)?\b)|"
    rf"[ ]((?:[A-Za-z]+[ ](?=[A-Za-z]+/))?{_UNIT})(?![\w/]|[ ]*[:=]|[ ]per[ ])",
    re.ASCII,
)
#: The name behind a number, up to the next one: "ms run, "
_NAME_OF_LAST = re.compile(r"[ ]?[A-Za-z]+(?: [A-Za-z]+){0,2}[,;|] *", re.ASCII)
_NAME_BEHIND = re.compile(rf"[ ]((?:{_WORD}[ ]){{0,2}}{_WORD})(?=[ ]*(?:[,;|)\]]|$))", re.ASCII)
_BYTES = re.compile(r"[kKMGT]?i?B/s(?:ec)?")
_SIZES = frozenset(
    "s ms sec secs seconds second min us ns % G M GB MB GiB MiB KB KiB K k TFLOPs it x h m".split()
)
_SECONDS = frozenset("s ms sec secs seconds".split())
_DURATIONS = _SECONDS | {"ms"}
_BYTE_UNITS = frozenset("MB GB MiB GiB".split())
#: Names of counters that may stand alone: epochs = 90 is a setting.
_BARE = frozenset(
    "epoch step iter iteration global_step training_step train_step total_timesteps episode "
    "n_updates nupdates frame_number".split()
)


def read(text: str, columns: Sequence[str] = ()) -> Reading | None:
    """Return what a line reports; None if it is not a line of metrics.

    Args:
        text: the line without its prefix.
        columns: of the table that the line may be a row of.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    text = junk.ascii_signs(text)
    if columns:
        cells, bar = tables.row(text, columns)
        if cells:
            row = [Value(*cell) for cell in cells]
            return Reading(readings.with_times([*row, *_values(junk.removed(bar))]))
    plain = junk.removed(tables.listed(text))
    if not _VALUE.search(plain):
        names = tables.header(text)
        return Reading(columns=names) if names else None
    other = junk.OTHER_LINE.search(plain)
    is_old = junk.OLD_BAR.search(text) is not None
    values = _values(plain[: other.start()] if other else plain, is_old=is_old)
    is_explicit = bool(_counters(values)) or any(value.explicit for value in values)
    if other is not None and not (is_explicit and any(v.meaning.kind == "loss" for v in values)):
        return None
    if values and not any(value.meaning.kind == "loss" for value in values):
        if junk.OTHER_BAR.match(text):
            return None
        if junk.BEGUN_BAR.search(text) and not junk.TRAINING_BAR.match(text):
            return None
        if junk.VALIDATION_BAR.match(text):
            values = readings.of_evaluation(values)
    if "v_num=" in text and "100%" not in text:
        # Until Lightning's bar is full, it shows the validation of the epoch before.
        values = [each for each in values if not each.meaning.name.startswith("val_")]
    return Reading(values) if values else None


def _values(text: str, *, is_old: bool = False) -> list[Value]:
    """Return the values of a text without junk; [] if it is not about metrics.

    Args:
        is_old: of the values only the counters are new.
    """
    matches = list(_VALUE.finditer(text))
    # Unknown names take two of them on average.
    if prose.other_words(text) > _MAX_OTHER_WORDS[-1] + 2 * len(matches):
        return []
    values: list[Value] = []
    places: list[str] = []
    other_words, phase, end = 0, "", 0
    is_evaluation, is_heading, group = False, False, ""
    at_step: Meaning | None = None
    before_step: Meaning | None = None
    for index, match in enumerate(matches):
        before = text[end : match.start()]
        end = match.end()
        following = matches[index + 1].start() if index + 1 < len(matches) else len(text)
        behind = text[end:following]
        name = _name(before, is_first=index == 0)
        beginning = before if name is None else before[: len(before) - len(name[0])]
        group = readings.group(beginning, group)
        phase = vocabulary.last_phase(prose.WORDS.findall(before), phase)
        other_words += prose.other_words(_prose(before, name))
        is_step_of_loss = False
        if at_step is not None:
            value: Value | None = Value(at_step, match["number"], match["unit"], explicit=True)
        elif (
            index == 0
            and name is not None
            and readings.is_step_of_loss(name, match, behind, matches)
        ):
            is_step_of_loss, before_step = True, vocabulary.last_meaning(name["words"])
            value = Value(Meaning("step", "counter"), match["number"], "step")
        else:
            value = _value(name, match, before, behind, is_last=following == len(text))
        if value is None and name is not None and "." in match["number"]:
            value = readings.in_other_phase(name, match, values)
            value = value or readings.unknown(name, match, before, behind)
        is_heading = readings.is_heading(beginning) or (
            is_heading and value is not None and value.meaning.kind == "other"
        )
        # Task [1/3], but neither Waves:1/3 nor fold[1/5]
        is_usual = name is not None and (
            (
                before.endswith("[")
                and not name["sign"].strip(" ")
                and not prose.is_run(name["words"])
            )
            or not prose.is_other(name["words"].rpartition(" ")[2])
        )
        is_done = value is None or value.meaning.kind == "counter"
        # The train loss of epoch 7 batch 50: 0.198
        before_step = before_step if is_done else None
        if is_done and following < len(text):
            before_step = readings.metric_at_step(before) or before_step
        is_result_next = is_step_of_loss or readings.AFTER_STEP.fullmatch(behind)
        at_step = before_step if is_result_next else None
        if value is not None:
            if is_heading and value.meaning.kind == "other":
                value = readings.of_loss(value)
            values.append(readings.in_phase(value._replace(group=group), phase))
            if value.unit and behind.lstrip(" ").startswith(value.unit):
                # A unit is not the name of the next number: 1445 tok/s; 19 s.
                end += behind.index(value.unit) + len(value.unit)
        elif (
            readings.is_count(match)
            and not behind[:1].isalpha()
            and not junk.BEFORE_BAR.match(behind)
            and (
                readings.PLACE.fullmatch(before)
                or (match["total"] and (is_usual or before.rstrip().endswith(junk.BAR)))
                or (match["total"] and not values and readings.BEFORE_CELL.search(before))
            )
            # Acc: 10.0% (10/100), error_rate=0.1 (1/10), fg/bg=(64/192)
            and not (
                values and values[-1].meaning.kind in ("score", "other") and before.strip() == "("
            )
            and not before.endswith("=(")
        ):
            start = match.start()
            is_in_brackets = text.rfind("[", 0, start) > text.rfind("]", 0, start)
            is_first = not values and (
                is_in_brackets or (index == 0 and _is_first_step(text[end:]))
            )
            # Epoch: [163][50]
            is_first |= before == "][" and behind[:1] == "]" and readings.last_is_epoch(values)
            is_whole = is_in_brackets or not behind.startswith("]")
            if is_whole and (match["total"] or is_first):
                places.append(match["number"].replace(",", "") + readings.scale(match))
                is_evaluation = phase == "val"
    other_words += prose.other_words(text[end:])
    kinds = {value.meaning.kind for value in values}
    # 12.5 s/it shows it as well as 0.08 it/s does.
    is_strong = bool(kinds & vocabulary.STRONG or any("/" in v.unit for v in values))
    is_strong |= junk.BEGUN_BAR.search(text) is not None
    is_strong |= "counter" in kinds and any(map(readings.is_of_phase, values))
    if is_strong or "time" in kinds:
        values = [*readings.placed(places, values, is_evaluation=is_evaluation), *values]
    counter_names = {value.meaning.name for value in _counters(values)}
    is_explicit = any(value.explicit for value in values if value.meaning.kind != "counter")
    # updates 5/1000 episodes, total num timesteps 1800/300000, FPS 38
    is_explicit |= sum(bool(match["total"]) for match in matches) > 1
    if kinds == {"counter"} and len(counter_names) == 1:
        is_metrics = other_words == 0 and all(value.unit in _BARE for value in values)
    elif is_strong or len(counter_names) > 1:
        is_metrics = other_words <= _MAX_OTHER_WORDS[bool(counter_names) + is_explicit]
        # {'lr': 0.1, 'epochs': 90, 'steps': 1000}
        is_metrics &= is_strong or not all(v.unit.endswith("s") for v in _counters(values))
    elif any(v.meaning.name == "step_time" and v.explicit and "." in v.number for v in values):
        is_metrics = other_words == 0
    else:
        # Learning rate: 0.1, Epochs: 10
        is_metrics = other_words < 2 and any(not v.unit.endswith("s") for v in _counters(values))
    if not is_metrics:
        return []
    if is_old:
        values = _counters(values)
    values = readings.without_settings(values, is_strong=is_strong)
    return readings.with_times(readings.with_own_names(readings.with_one_step(values)))


def _counters(values: Sequence[Value]) -> list[Value]:
    return [value for value in values if value.meaning.kind == "counter"]


def _name(before: str, *, is_first: bool) -> re.Match[str] | None:
    """Return the name at the end of the text before a number."""
    name = _NAME.search(before[-_MAX_NAME_CHARACTERS:])
    if name is not None and name["sign"].strip(" ") in (",", ";", "|") and not is_first:
        # In "3438 src tok/s; 3517 tgt tok/s" it is the name of the number before.
        is_of_number_before = not before[: len(before) - len(name[0])].strip()
        return None if is_of_number_before else name
    return name


def _is_first_step(behind: str) -> bool:
    """Tell whether a number at the beginning of a line is its step, not a part of a sentence."""
    end = readings.FIRST_END.match(behind)
    if end is None or end[1] is None:
        return end is not None
    # 100 samples, accuracy 0.91
    return not (prose.is_other(end[1]) or end[1].lower() in vocabulary.COUNTED)


def _prose(before: str, name: re.Match[str] | None) -> str:
    """Return the text before a number without its name: without a sign that is the last word."""
    if _NAME_OF_LAST.fullmatch(before):
        return ""
    if name is None:
        return before
    start = len(before) - len(name[0])
    if name["sign"].strip(" ") in _WEAK_SIGNS:
        start += name.end("words") - name.start() - len(name["words"].rpartition(" ")[2])
    return before[:start]


def _value(
    name: re.Match[str] | None, match: re.Match[str], before: str, behind: str, *, is_last: bool
) -> Value | None:
    """Return the value of a number by the name before it, its unit or the name behind it."""
    number = match["number"].replace(",", "")
    scaled = number + readings.scale(match)
    found_unit = None if match["unit"] else _BEHIND.match(behind)
    unit = (found_unit[1] or found_unit[2]) if found_unit else ""
    if _BYTES.fullmatch(unit) or (unit.lower() == "hz" and "." not in number):
        # 16000 Hz is a sampling rate.
        return None
    by_unit = vocabulary.unit_meaning(unit)
    if unit and by_unit is None and not behind.startswith(" "):
        glued = vocabulary.meaning(unit)
        if glued is not None and glued.kind == "counter" and readings.is_count(match):
            return Value(glued, scaled, glued.name)
        if unit not in _SIZES:
            # A part of a word, such as 3d or 7B.
            return None
    is_explicit = name is not None and name["sign"].strip(" ") not in _WEAK_SIGNS
    found = vocabulary.last_meaning(name["words"], explicit=is_explicit) if name else None
    is_only_text = not is_last and behind.strip() == unit
    is_rate_next = by_unit is not None and by_unit.kind == "rate" and is_only_text
    if is_rate_next and name is not None and not is_explicit:
        if unit.lower() in vocabulary.RATE_UNITS or (found and found.kind != "rate"):
            # lr 0.1 tok/s 1234
            unit, by_unit = "", None
    if name is not None and found is not None:
        is_result = found.kind in ("loss", "score")
        # loss 0.5 tokens/s 1234
        is_name_of_next = is_only_text and is_result
        # speed: 0.03 s/iter
        is_time = by_unit is not None and by_unit.kind == "time" and found.kind == "rate"
        is_rate_or_time = is_explicit and not is_result and not is_time
        if found.kind == "rate" and (match["total"] or behind.startswith(f" {unit} in ")):
            # speed: 198 iterations in 0:02:47
            return None
        if found.kind == "counter":
            # iter: 1.5s
            is_time = found.name == "step" and "." in number and unit in _DURATIONS
            if is_time or readings.is_batch_time(name, match):
                step_time = Meaning("step_time", "time")
                return Value(step_time, number, unit if is_time else "", is_explicit)
            if by_unit is None and unit not in _SECONDS and readings.is_count(match):
                printed = vocabulary.snake(name["words"])
                if printed not in _BARE:
                    printed = vocabulary.snake(name["words"].split(" ")[-1])
                return Value(found, scaled, printed, is_explicit)
        elif by_unit is None or is_name_of_next or is_rate_or_time:
            is_unit = not is_name_of_next and (by_unit is not None or unit in _SIZES)
            # | value_loss | 333 |
            is_named = is_explicit or ("|" in name["sign"] and behind.lstrip(" ")[:1] == "|")
            value = _named(found, match, unit if is_unit else "", name["extra"] or "", is_named)
            return value and value._replace(printed_name=vocabulary.snake(name["words"]))
    if by_unit is not None:
        if found is not None and found.kind == "rate":
            by_unit = by_unit._replace(kind="rate")
        is_rate = by_unit.kind == "rate"
        return Value(by_unit, scaled if is_rate else number, unit, explicit=is_rate)
    if counted := readings.counted(name, before, match, behind):
        return counted
    if name is None and readings.is_unnamed_time(before, behind):
        return Value(readings.UNNAMED_TIME, number, unit)
    name_behind = _NAME_BEHIND.match(behind if is_last else behind + "0")
    found = vocabulary.last_meaning(name_behind[1]) if name_behind else None
    if name_behind is None or found is None:
        return None
    if found.kind == "counter" and readings.is_count(match) and name_behind[1].lower() in _BARE:
        return Value(found, scaled, name_behind[1].lower())
    printed = vocabulary.snake(name_behind[1])
    if found.kind == "rate":
        return Value(found, scaled, found.unit, printed_name=printed)
    is_metric = found.kind in ("loss", "score") and not number.isdigit()
    return Value(found, number, found.unit, printed_name=printed) if is_metric else None


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
    if found.kind in ("rate", "time"):
        number += readings.scale(match)
    elif match["scale"]:
        sign = match["scale"]
    unit = unit or sign
    if found.kind == "loss" and unit in _BYTE_UNITS:
        # GPU_mem cost is 3806.5 MB
        return None
    if found.kind in ("loss", "score") and unit in _SECONDS:
        # Cost: 6.79s
        return Value(Meaning("time", "time"), number, unit, is_explicit)
    if found.kind in ("loss", "score") and number.isdigit() and not unit:
        is_return = found.name in vocabulary.RETURNS or "reward" in found.name
        may_be_whole = is_accuracy or found.kind == "loss" or is_return
        if not (is_explicit and may_be_whole):
            return None
    return Value(found, number, unit or found.unit, is_explicit)
