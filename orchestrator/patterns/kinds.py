"""A kind of line, made ready for many lines: what a line of it tells, and where."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from orchestrator.patterns import (
    fields,
    layouts,
    names,
    numbers,
    prefixes,
    records,
    shapes,
)
from orchestrator.text import expressions

#: Kinds of line and names of fields that are remembered; a log of garbage has any number.
_MOST_CHOICES = 4096

#: Orders of names that a kind of line is known to have at a time, and lines that one is made of:
#: to make one takes as long as to take some hundred lines apart.
_MOST_LAYOUTS = 6
_MOST_LEARNT = 40

#: Seconds since 1970 of the year 2200: more is garbage.
_LAST_SECOND = 7_258_118_400


_T = TypeVar("_T")


@dataclasses.dataclass(slots=True)
class Told:
    """What a line tells, before it is a metric."""

    #: by name and unit; of the same ones the first counts
    values: dict[tuple[str, str], float]
    context: dict[str, int]
    phase: str = ""
    time: datetime.datetime | None = None


class Traced(NamedTuple):
    """Where in a line its numbers stand."""

    values: dict[tuple[str, str], shapes.Span]
    #: by the names of `records.CONTEXT`
    counts: dict[str, shapes.Span]


class _Meaning(NamedTuple):
    """What a group or a field of a line is."""

    #: "": nothing
    name: str
    unit: str
    #: name and unit of the metrics it becomes
    keys: tuple[tuple[str, str], ...]
    #: it is told by the line's other numbers, or instead of being one
    special: bool


class Kind:
    """A kind of line of a pattern, made ready for many lines."""

    def __init__(self, number: int, pattern: records.Pattern, kind: records.LineKind) -> None:
        """`number`: of the kind, over all patterns."""
        self.number, self.pattern, self.kind = number, pattern, kind
        self.source = pattern.source
        self.follows = pattern.follows
        self._fields: dict[tuple[str, str], _Meaning] = {}
        self._layouts: list[tuple[layouts.Layout, list[_Meaning]]] = []
        self._to_learn = _MOST_LEARNT
        self._groups = {
            (name, ""): _meaning(meant.name, meant.unit) for name, meant in kind.metrics.items()
        }

    def stands_in(self, text: str) -> bool:
        """Whether the line has a text that all lines of this kind have."""
        contains = self.kind.contains
        return not contains or any([part in text for part in contains])

    def match(
        self, text: str, prefix: prefixes.Prefix, regex: re.Pattern[str] | expressions.Expression
    ) -> tuple[re.Match[str] | expressions.Match | None, int]:
        """Return the match of the line or of what its prefix leaves, and where that begins."""
        match = regex.fullmatch(text)
        if match is not None or prefix.rest == text:
            return match, 0
        return regex.fullmatch(prefix.rest), len(text) - len(prefix.rest)

    def why_slow(self, error: expressions.TooSlowError) -> str:
        """Return a sentence for the user whose expression was too slow on a line."""
        return (
            f'pattern {self.pattern.name}, line "{self.kind.name}" ({self.pattern.origin}): its '
            f"regex took {error} and is not used for the rest of this read. Simplify it: fewer "
            "alternatives and repeats within repeats, no lookaround and no back-references"
        )

    @functools.cached_property
    def wide(self) -> re.Pattern[str] | expressions.Expression | None:
        """What fits all lines that differ from one of this kind in digits alone."""
        return shapes.widened(self.kind)

    @property
    def exact(self) -> bool:
        """Whether it fits no others, and what they tell depends on nothing but themselves."""
        kind = self.kind
        texts = (*kind.contains, kind.separator, kind.between)
        # How JSON is read depends on its digits: 05 is none.
        by_digits = kind.form is records.Form.JSON or any(map(shapes.has_digit, texts))
        return self.wide is kind.regex and not by_digits and not self.follows and not kind.pair

    def traced(self, match: re.Match[str] | expressions.Match, place: int) -> Traced | None:
        """Return where a fitting line has what `told` finds; None where that is not known."""
        kind, groups = self.kind, match.groupdict()
        found = Traced({}, {})
        for key in records.CONTEXT:
            if groups.get(key):
                if not shapes.is_count(groups[key]):
                    return None
                found.counts[key] = _moved(match.span(key), place)
        phase = groups.get(records.PHASE) or ""
        numbered: list[tuple[_Meaning, str, shapes.Span]] = []
        for name, meant in kind.metrics.items():
            if not groups[name]:
                continue
            unit = groups.get(name + records.UNIT_SUFFIX) or ""
            if shapes.has_digit(unit) or not shapes.is_value(groups[name], kind.kinds.get(name)):
                return None
            meaning = self._groups.get((name, unit)) or _meaning(meant.name, unit)
            numbered.append((meaning, groups[name], _moved(match.span(name), place)))
        if kind.form is not None:
            read = self._traced_fields(groups.get(records.FIELDS) or "")
            if read is None:
                return None
            place += match.start(records.FIELDS)
            numbered += [(meaning, text, _moved(span, place)) for meaning, text, span in read]
        for meaning, text, span in numbered:
            if meaning.special:
                # Of two that tell the same the first counts that is whole.
                once = shapes.is_count(text) or meaning.name not in found.counts
                if not once or meaning.name not in records.CONTEXT:
                    return None
                found.counts.setdefault(meaning.name, span)
            for metric in meaning.keys:
                found.values.setdefault(metric, span)
        if phase and shapes.has_digit(phase):
            return None
        return found._replace(values=in_phase(found.values, phase)) if phase else found

    def _traced_fields(self, text: str) -> list[tuple[_Meaning, str, tuple[int, int]]] | None:
        """Return what the fields of a text mean, and where in it their numbers stand."""
        read: list[tuple[str, str, str, tuple[int, int]]] = []
        written = records.Kind.THOUSANDS if self.kind.form is records.Form.PAIRS else None
        if self.kind.form is records.Form.DICT:
            for field, span in fields.dict_items(text) or []:
                read.append((*field, span))
        else:
            for layout, _ in self._layouts:
                match = layout.expression.fullmatch(text)
                if match is not None:
                    read = [
                        (key, match[group], unit, match.span(group))
                        for group, (key, unit) in enumerate(layout.keys, 1)
                    ]
                    break
        found: list[tuple[_Meaning, str, tuple[int, int]]] = []
        for key, shown, unit, span in read:
            if shapes.has_digit(key + unit):
                return None
            meaning = self._meaning(key, unit)
            if not meaning.name:
                continue
            if not shapes.is_value(shown, written):
                if meaning.name == records.PHASE or not shapes.is_no_value(shown):
                    return None
                continue
            found.append((meaning, shown, span))
        return found or None

    def told(self, match: re.Match[str] | expressions.Match) -> Told | None:
        """Return what a fitting line tells; None where its fields have not their form."""
        kind, groups = self.kind, match.groupdict()
        told = Told(values={}, context={})
        for key in records.CONTEXT:
            if key in groups:
                count = numbers.integer(groups[key] or "")
                if count is not None and count >= 0:
                    told.context[key] = count
        told.phase = groups.get(records.PHASE) or ""
        for name, meant in kind.metrics.items():
            text = groups[name]
            if not text:
                continue
            value = numbers.of_kind(text, kind.kinds[name] if name in kind.kinds else None)
            if value is not None:
                unit = groups.get(name + records.UNIT_SUFFIX) or ""
                meaning = self._groups.get((name, unit))
                if meaning is None:
                    make_room(self._groups)
                    meaning = self._groups[name, unit] = _meaning(meant.name, unit)
                _add(told, meaning, value, text)
        if kind.form is None:
            return told
        text = groups.get(records.FIELDS) or ""
        if not self._laid_out(told, text) and not self._taken_apart(told, text):
            return None
        values = told.values
        if kind.needs:
            told_names = {name for name, _ in values}
            if not all([told_names.intersection(names) for names in kind.needs]):
                return None
        return told

    def _laid_out(self, told: Told, text: str) -> bool:
        """Add the fields of a text whose names came in this order before."""
        for place, (layout, meanings) in enumerate(self._layouts):
            found = layout.read(text)
            if found is None:
                continue
            if place:
                self._layouts.insert(0, self._layouts.pop(place))
            values = told.values
            for meaning, value in zip(meanings, found, strict=True):
                if meaning.special:
                    _add(told, meaning, value, "")
                else:
                    for metric in meaning.keys:
                        if metric not in values:
                            values[metric] = value
            return True
        return False

    def _taken_apart(self, told: Told, text: str) -> bool:
        """Add the fields of a text; false where it has not their form."""
        kind = self.kind
        read = fields.read(kind, text)
        if read is None:
            return False
        if kind.form is records.Form.PAIRS and self._to_learn > 0:
            self._learn(text)
        if kind.pair:
            read = fields.paired(read, kind.pair)
        for key, shown, unit in read:
            meaning = self._meaning(key, unit)
            if meaning.name:
                _add(told, meaning, numbers.number(shown), shown)
        return True

    def _meaning(self, key: str, unit: str) -> _Meaning:
        meaning = self._fields.get((key, unit))
        if meaning is None:
            make_room(self._fields)
            meaning = self._fields[key, unit] = _meant(self.kind, key, unit)
        return meaning

    def _learn(self, text: str) -> None:
        self._to_learn -= 1
        layout = layouts.learn(self.kind, text)
        if layout is None or self.kind.pair:
            return
        meanings = [self._meaning(key, unit) for key, unit in layout.keys]
        # A word is told by its text, which a layout does not keep.
        if not any(meaning.name == records.PHASE for meaning in meanings):
            self._layouts.insert(0, (layout, meanings))
            del self._layouts[_MOST_LAYOUTS:]


def _meant(kind: records.LineKind, key: str, unit: str) -> _Meaning:
    value = kind.fields.get(key)
    if value is None:
        name = names.known(key)
        if name is None:
            name = names.snake(key) if kind.others else ""
        value = records.Value(name=name)
    return _meaning(value.name, unit or value.unit)


def _meaning(name: str, unit: str) -> _Meaning:
    shown = unit[: numbers.UNIT_CHARACTERS]
    every = (name, "throughput") if name in names.RATES else (name,)
    return _Meaning(
        name=name,
        unit=unit,
        keys=tuple((one, shown) for one in every if one and one not in records.SURROUNDINGS),
        special=name in records.SURROUNDINGS or name in records.CONTEXT,
    )


def _moved(span: tuple[int, int], place: int) -> shapes.Span:
    return shapes.Span(span[0] + place, span[1] + place)


def in_phase(values: Mapping[tuple[str, str], _T], phase: str) -> dict[tuple[str, str], _T]:
    """Return the values of a line of this phase, under the names that they have there."""
    found: dict[tuple[str, str], _T] = {}
    for (name, unit), value in values.items():
        new = names.in_phase(name, phase)
        # A rate is the throughput of training alone.
        rate = name == "throughput" and any([(one, unit) in values for one in names.RATES])
        if new == name or not rate:
            found.setdefault((new, unit), value)
    return found


def make_room(remembered: dict[Any, Any]) -> None:
    """Forget all of what is remembered when there is too much of it."""
    if len(remembered) >= _MOST_CHOICES:
        remembered.clear()


def firsts(
    values: Mapping[tuple[str, str], float], before: Collection[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return of each metric the first, less those that were told before."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for metric in values:
        if key(*metric) not in before:
            found.setdefault(key(*metric), metric)
    return {metric: values[metric] for metric in found.values()}


def key(name: str, unit: str) -> tuple[str, str]:
    # Some tell images/s and TFLOP/s, and both are throughput.
    return name, unit if name == "throughput" else ""


def _add(told: Told, meaning: _Meaning, value: float | None, text: str) -> None:
    """Add a number, or what surrounds the numbers of a line."""
    name = meaning.name
    if name == records.PHASE:
        told.phase = told.phase or text
    elif value is None:
        return
    elif name == records.TIME:
        seconds = value / 1000 if meaning.unit == "ms" else value
        if 0 < seconds < _LAST_SECOND:
            told.time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    else:
        if meaning.special:
            count = numbers.whole(value)
            if count is not None:
                told.context.setdefault(name, count)
        for metric in meaning.keys:
            told.values.setdefault(metric, value)
