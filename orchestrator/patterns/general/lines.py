"""Reads metrics from the lines of any program: known names and units with numbers beside them.

A line is cut at its numbers. The text before a number ends in its name (`loss: 0.5`, `loss 0.5`),
the text behind it begins with its unit (`135.5 images/sec`) or its name (`11.8750 loss`), or its
place says what it is (`Epoch [3][10/500]`). Lines with much other text are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.patterns import regexes, training_phases, vocabulary
from orchestrator.patterns.general import counters, junk, phrases, prose, readings, tables
from orchestrator.patterns.general.readings import Reading, Value
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
    (?P<number>{_NUMBER})(?!(?<=[A-Za-z])[A-Za-z]|[0-9]|[A-Za-z]*_|[.:][0-9])
    (?!,[0-9]{{3}}(?![0-9])|,[0-9]{{1,2}}(?:[ ]|$))
    (?P<scale>[kKMB](?!\w))?
    (?P<total>(?:[ ]?/[ ]*|[ ]+of[ ]+(?=[0-9]))
        (?:[0-9]+(?:,[0-9]{{3}})*(?:[.][0-9]+(?=[kKMB]))?[kKMB]?|Unknown|\?)(?![0-9]|\.[0-9]))?
    (?P<unit>%?)
    (?:[ ]?\([ ]*(?P<mean>{_NUMBER})[ ]*(?P<percent>%?)[ ]*\))?
    (?:[ ]?(?:\+/?-|\u00b1)[ ]?[0-9.]+)?
    """,
    re.ASCII | re.VERBOSE,
)
# A longer word with a dot ends a sentence.
_WORD = (
    r"(?:[A-Za-z]{1,5}[.](?=[ :=])|[A-Za-z]+-[A-Za-z-]+[.](?=:)|"
    r"[A-Za-z_][\w@]*+(?>(?:[./@#-]++[A-Za-z0-9_][\w@]*+)*)(?>(?:'s|%)?))"
)
#: What a number is wrapped in: np.float32(0.5), tf.Tensor(0.5, shape=()
_WRAPPER = r"(?:[\w.]*(?:[Tt]ensor|[Aa]rray)|j?np\.\w+|param)\("
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
    r"(?>(?:[ ]?/[ ]?(?:[A-Za-z]+|\([A-Za-z]+\))|[ ]per[ ][A-Za-z]+|[ ]a[ ]second)*)"
)
# Behind a blank it may also be the name of the next number.
_BEHIND = re.compile(
    rf"-?({_UNIT}|/s(?:ec)?\b)|"
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
#: 0.7h/epoch, 12.3s step 100
_GLUED_UNIT = re.compile(r"^(?:[A-Za-z]+/[A-Za-z]+|m?s|secs?|[KMG]i?B)(?=[ ])")


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
            in_bar = _values(junk.removed(bar), frame=junk.BAR)
            return Reading(readings.with_times([*row, *in_bar]))
    plain = junk.removed(tables.listed(text))
    numbers = list(_VALUE.finditer(plain))
    if not numbers:
        names = tables.header(text, columns)
        return Reading(columns=names) if names else None
    other = junk.OTHER_LINE.search(plain)
    is_old = junk.OLD_BAR.search(text) is not None
    values = _values(plain[: other.start()] if other else plain, is_old, junk.frame(text))
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


def _values(text: str, is_old: bool = False, frame: str = "") -> list[Value]:
    """Return the values of a text without junk; [] if it is not about metrics.

    Args:
        is_old: of the values only the counters are new.
        frame: the sign at both ends of the line; junk.BAR for the bar behind a row of a table.
    """
    matches = list(_VALUE.finditer(text))
    # Unknown names take two of them on average.
    if prose.other_words(text) > _MAX_OTHER_WORDS[-1] + 2 * len(matches):
        return []
    values: list[Value] = []
    places: list[str] = []
    other_words, phase, end, count = 0, "", 0, 0
    is_evaluation, is_heading, has_mean, group = False, False, False, ""
    at_step: Meaning | None = None
    before_step: Meaning | None = None
    for index, match in enumerate(matches):
        before = text[end : match.start()]
        if index and before[:1].isalpha():
            before = _GLUED_UNIT.sub("", before)
        end = match.end()
        following = matches[index + 1].start() if index + 1 < len(matches) else len(text)
        behind = text[end:following]
        name = _name(before, is_first=index == 0)
        beginning = before if name is None else before[: len(before) - len(name[0])]
        group = readings.group(beginning, group, values)
        phase = training_phases.last_phase(prose.WORDS.findall(before), phase)
        other_words += prose.other_words(_prose(before, name))
        if at_step is not None and (at_step.kind != "other" or "." in match["number"]):
            value: Value | None = Value(at_step, match["number"], match["unit"], explicit=True)
        else:
            value = _value(name, match, before, behind, is_last=following == len(text))
        if value is None and name is not None and not match["number"].lstrip("+-").isdigit():
            value = readings.in_other_phase(name, match, values)
            value = value or phrases.of_phrase(name, match, before)
            is_part = readings.is_heading(beginning)
            value = value or readings.unknown(name, match, before, behind, is_part=is_part)
        is_heading = readings.is_heading(beginning) or (
            is_heading and value is not None and value.meaning.kind == "other"
        )
        in_bracket = before.endswith("[") and name is not None and not name["sign"].strip(" ")
        is_usual = name is not None and prose.is_counted(name["words"], in_bracket=in_bracket)
        is_done = value is None or value.meaning.kind == "counter"
        # The train loss of epoch 7 batch 50: 0.198
        before_step = before_step if is_done else None
        if is_done and following < len(text):
            before_step = phrases.metric_at_step(before) or before_step
        at_step = before_step if phrases.AFTER_STEP.fullmatch(behind) else None
        # Of TRAIN(0,3,50) none is the step.
        is_read = not index or "[" in before or len(values) + len(places) > count
        count = len(values) + len(places)
        if value is not None:
            # Test: [0/2] ADE 1.21 (1.25)
            has_mean |= value.meaning.kind == "other" and "." in (match["mean"] or "")
            if is_heading:
                value = readings.of_loss(value)
            values.append(readings.in_phase(value._replace(group=group), phase))
            if value.unit and behind.lstrip(" -").startswith(value.unit):
                # A unit is not the name of the next number: 1445 tok/s; 19 s.
                end += behind.index(value.unit) + len(value.unit)
        elif (
            readings.is_count(match)
            and not behind[:1].isalpha()
            and not junk.BEFORE_BAR.match(behind)
            and (
                ((is_read or match["total"]) and counters.PLACE.fullmatch(before))
                or (match["total"] and readings.TAGS.fullmatch(before))
                or (match["total"] and (is_usual or before.rstrip().endswith(junk.BAR)))
                or (match["total"] and not values and readings.BEFORE_CELL.search(before))
            )
            # Acc: 10.0% (10/100), error_rate=0.1 (1/10), fg/bg=(64/192)
            and not (
                values
                and values[-1].meaning.kind in ("score", "other")
                and before.strip(" ,") == "("
            )
            and not before.endswith("=(")
        ):
            start = match.start()
            is_in_brackets = text.rfind("[", 0, start) > text.rfind("]", 0, start)
            is_first = not values and (
                is_in_brackets or (index == 0 and counters.is_first_step(text[end:]))
            )
            # Epoch: [163][50]
            is_after_epoch = bool(values) and values[-1].meaning.name == "epoch"
            is_first |= before == "][" and behind[:1] == "]" and is_after_epoch
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
    is_strong |= (has_mean and bool(places)) or frame == junk.BAR
    # Epoch 3 [40/90] d_l: 0.51
    is_strong |= bool(places) and "other" in kinds and values[0].meaning.name == "epoch"
    # D: 0.51 | G: 0.62, train D 0.51 G 0.62
    is_strong |= {"d", "g"} <= {value.meaning.name.rpartition("_")[2] for value in values}
    if places:
        values = counters.without_batch_size(values)
    if is_strong or "time" in kinds:
        values = [*counters.placed(places, values, is_evaluation=is_evaluation), *values]
    counter_names = {value.meaning.name for value in _counters(values)}
    is_explicit = any(value.explicit for value in values if value.meaning.kind != "counter")
    # updates 5/1000 episodes, total num timesteps 1800/300000, FPS 38
    is_explicit |= sum(bool(match["total"]) for match in matches) > 1
    if kinds == {"counter"} and len(counter_names) == 1:
        is_metrics = other_words == 0 or (
            other_words < _MAX_OTHER_WORDS[1] and prose.AT_STEP.match(text) is not None
        )
        is_metrics &= all(counters.may_stand_alone(value, frame=frame) for value in values)
    elif is_strong or len(counter_names) > 1:
        is_metrics = other_words <= _MAX_OTHER_WORDS[bool(counter_names) + is_explicit]
        is_metrics &= is_strong or not counters.are_settings(_counters(values))
    elif any(map(readings.is_step_time, values)):
        is_metrics = other_words == 0
    else:
        # Learning rate: 0.1, Epochs: 10
        is_metrics = other_words < 2 and any(not v.unit.endswith("s") for v in _counters(values))
    if not is_metrics:
        return []
    if is_old:
        values = _counters(values)
    values = readings.without_settings(values, is_strong=is_strong)
    return readings.with_times(readings.with_own_names(counters.with_one_step(values)))


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


def _prose(before: str, name: re.Match[str] | None) -> str:
    """Return the text before a number without its name: without a sign that is the last word."""
    if _NAME_OF_LAST.fullmatch(before):
        return ""
    if name is None:
        return before
    start = len(before) - len(name[0])
    if name["sign"].strip(" ") in _WEAK_SIGNS:
        of_name = name["words"].split(" ")
        # actor loss 0.5
        count = 2 if of_name[-1].lower() == "loss" else 1
        start += name.end("words") - name.start() - len(" ".join(of_name[-count:]))
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
    if by_unit is not None and by_unit.kind == "rate" and "peak" in before.lower():
        # Of the device: GPU peak bf16: 989.5 TFLOP/s
        return None
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
        # speed: 198 iterations in 0:02:47, T: 4000
        is_count = match["total"] or behind.startswith(f" {unit} in ")
        is_letter = name["words"][-2:-1] in ("", " ") and found.kind == "time"
        # Tokens / optimizer step: 32,768
        beginning = before[: len(before) - len(name[0])]
        is_ratio = found.kind == "counter" and beginning.endswith(("/", "/ "))
        # forward 40%
        is_share = found.kind == "time" and match["unit"] == "%"
        if (
            is_share
            or is_ratio
            or (found.kind == "rate" and is_count)
            or (is_letter and number.isdigit() and not unit)
        ):
            return None
        if found.kind == "counter":
            # iter: 1.5s, Batch 0.818 (3.887)
            is_time = found.name == "step" and "." in number
            is_time &= unit in readings.SECONDS or "." in (match["mean"] or "")
            # Time for 40 iterations: 12.1 s
            is_time &= not name["words"].endswith("s")
            if is_time:
                shown = unit if unit in readings.SECONDS else ""
                return Value(Meaning("step_time", "time"), number, shown, is_explicit)
            if by_unit is None and unit not in readings.SECONDS and readings.is_count(match):
                printed = vocabulary.snake(name["words"])
                if printed not in vocabulary.ALONE:
                    last = name["words"].rpartition(" ")[2]
                    printed = vocabulary.snake(last)
                    if not vocabulary.may_stand_alone(printed):
                        # misc/total_timesteps
                        printed = vocabulary.snake(last.rpartition("/")[2])
                has_total = match["total"] is not None
                return Value(found, scaled, printed, is_explicit, has_total=has_total)
        elif by_unit is None or is_name_of_next or is_rate_or_time:
            # D loss: 0.5 G loss: 0.6
            is_next = is_name_of_next or (is_result and len(unit) == 1 and unit.isupper())
            is_unit = not is_next and (by_unit is not None or unit in _SIZES)
            # | value_loss | 333 |
            is_named = is_explicit or ("|" in name["sign"] and behind.lstrip(" ")[:1] == "|")
            value = readings.named(
                found, match, unit if is_unit else "", name["extra"] or "", is_named
            )
            return value and value._replace(printed_name=vocabulary.snake(name["words"]))
    if by_unit is not None:
        if found is not None and found.kind == "rate":
            by_unit = by_unit._replace(kind="rate")
        is_rate = by_unit.kind == "rate"
        return Value(by_unit, scaled if is_rate else number, unit, explicit=is_rate)
    if counted := counters.counted(name, before, match, behind):
        return counted
    if name is None and readings.is_unnamed_time(before, behind):
        return Value(readings.UNNAMED_TIME, number, unit)
    name_behind = _NAME_BEHIND.match(behind if is_last else behind + "0")
    found = vocabulary.last_meaning(name_behind[1]) if name_behind else None
    if name_behind is None or found is None:
        return None
    printed = vocabulary.snake(name_behind[1])
    is_counter = found.kind == "counter" and vocabulary.may_stand_alone(printed)
    if is_counter and readings.is_count(match):
        return Value(found, scaled, printed)
    if found.kind == "rate":
        return Value(found, scaled, found.unit, printed_name=printed)
    is_metric = found.kind in ("loss", "score") and not number.isdigit()
    return Value(found, number, found.unit, printed_name=printed) if is_metric else None
