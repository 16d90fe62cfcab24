"""Lines of a log -> metrics, with what one line says about the next."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator import jobs
from orchestrator.patterns import fields, layouts, names, numbers, prefixes, records, scanning

#: Longer lines hold no metrics that people print; it also bounds what a slow regex can cost.
MATCH_CAP_CHARACTERS = 4096
#: Ranks whose lines are kept apart; of more the one that was silent longest is forgotten.
_MOST_LABELS = 1024

#: "Epoch 1/5" alone is a line of many programs, and says not whose log this is.
_COUNTERS = frozenset(("epoch", "step"))

#: Kinds of line and names of fields that are remembered; a log of garbage has any number.
_MOST_CHOICES = 4096

#: Orders of names that a kind of line is known to have at a time, and lines that one is made of:
#: to make one takes as long as to take some hundred lines apart.
_MOST_LAYOUTS = 6
_MOST_LEARNT = 40

#: Seconds since 1970 of the year 2200: more is garbage.
_LAST_SECOND = 7_258_118_400


@dataclasses.dataclass
class _Kept:
    """A value that a line told about those that follow."""

    value: int | str
    #: kind of line that took it last; "": none yet; None: any may take it, any number of times
    taker: str | None


@dataclasses.dataclass
class _Stream:
    """What the lines of one rank told so far."""

    #: pattern -> kind of its last line
    last: dict[str, str] = dataclasses.field(default_factory=dict)
    #: pattern -> what holds for lines that follow
    kept: dict[str, dict[str, _Kept]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class _Told:
    """What a line tells, before it is a metric."""

    #: by name and unit; of the same ones the first counts
    values: dict[tuple[str, str], float]
    context: dict[str, int]
    phase: str = ""
    time: datetime.datetime | None = None


class Reading(NamedTuple):
    """The numbers that one pattern finds in a line."""

    #: log:PATTERN
    source: str
    rank: int | None
    world_size: int | None
    step: int | None
    epoch: int | None
    time: datetime.datetime | None
    #: name and unit of each number
    names: tuple[tuple[str, str], ...]
    values: tuple[float, ...]


class Matcher:
    """Finds metrics in the lines of one log; its state goes on from one process to the next."""

    def __init__(
        self, patterns: Sequence[records.Pattern], state: Mapping[str, Any] | None = None
    ) -> None:
        kinds = scanning.numbered(patterns)
        # Generic ones come last, each group in the patterns' order.
        self._kinds = [
            _Kind(number, pattern, kind)
            for number, pattern, kind in sorted(kinds, key=lambda one: one[1].generic)
        ]
        self._chosen: dict[tuple[int, ...], list[_Kind]] = {}
        self._by_text: dict[str, list[int]] = {}
        for one in self._kinds:
            for text in one.kind.contains or ("",):
                self._by_text.setdefault(text, []).append(one.number)
        #: names of lines, each once in a line
        self._names: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        self._attempt, self._known, self._streams = _restored(state or {})

    @property
    def state(self) -> dict[str, Any]:
        """Return what holds for the lines that follow, ready for JSON."""
        return {
            "attempt": self._attempt,
            "known": self._known,
            "streams": {
                label: {
                    "last": dict(stream.last),
                    "kept": {
                        name: {key: [kept.value, kept.taker] for key, kept in context.items()}
                        for name, context in stream.kept.items()
                        if context
                    },
                }
                for label, stream in self._streams.items()
            },
        }

    @property
    def generic(self) -> bool:
        """Whether generic patterns count for the lines that follow."""
        return not self._known

    @property
    def followed(self) -> set[str]:
        """Return the patterns of which lines were seen that may say something about others."""
        return {name for stream in self._streams.values() for name in stream.last}

    def match(
        self,
        text: str,
        *,
        attempt: int = 0,
        path: str = "",
        line: int | None = None,
        marks: tuple[int, ...] | None = None,
    ) -> list[jobs.Metric]:
        """Return the metrics of a line; of two patterns that find the same one the first wins.

        Lines must come in the log's order. A NaN says that there was no finite number. Generic
        patterns count until another one has found something. `marks`: what a scanner found.
        """
        return [
            jobs.Metric(
                name=name,
                value=value,
                unit=unit,
                step=reading.step,
                epoch=reading.epoch,
                rank=reading.rank,
                world_size=reading.world_size,
                time=reading.time,
                attempt=attempt,
                source=reading.source,
                path=path,
                line=line,
            )
            for reading in self.read(text, attempt=attempt, marks=marks)
            for (name, unit), value in zip(reading.names, reading.values, strict=True)
        ]

    def read(
        self, text: str, *, attempt: int = 0, marks: tuple[int, ...] | None = None
    ) -> list[Reading]:
        """Return the numbers of a line, as `match` does."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._streams = {}
        if len(text) > MATCH_CAP_CHARACTERS:
            return []
        # Keras goes back by \b over what it wrote.
        text = text.rstrip(" \t\r\n\v\f\b")
        if marks is None or scanning.ANY in marks:
            marks = tuple(
                [one for part, those in self._by_text.items() if part in text for one in those]
            )
        chosen = self._chosen.get(marks)
        if chosen is None:
            chosen = self._choose(marks)
        prefix: prefixes.Prefix | None = None
        readings: list[Reading] = []
        fitted: records.Pattern | None = None
        for one in chosen:
            if one.pattern is fitted or not one.stands_in(text):
                continue
            if one.pattern.generic and (self._known or readings):
                break
            if prefix is None:
                prefix = prefixes.split(text)
            told = self._line(one, text, prefix)
            if told is None:
                continue
            fitted = one.pattern
            names = tuple(told.values)
            if readings or names not in self._names:
                before = {_key(*name) for reading in readings for name in reading.names}
                told.values = _firsts(told.values, before)
                names = tuple(told.values)
            if names:
                context = told.context
                # One object for alike lines: what is stored is looked up by it.
                _make_room(self._names)
                names = self._names.setdefault(names, names)
                readings.append(
                    Reading(
                        one.source,
                        context.get("rank", prefix.rank),
                        context.get("world_size"),
                        context.get("step"),
                        context.get("epoch"),
                        told.time or prefix.time,
                        names,
                        tuple(told.values.values()),
                    )
                )
        # Of generic patterns nothing was asked where another one found something.
        if readings and not self._known and fitted is not None and not fitted.generic:
            told_names = {name for reading in readings for name, _ in reading.names}
            self._known = not told_names <= _COUNTERS
        return readings

    def _choose(self, marks: tuple[int, ...]) -> list[_Kind]:
        if len(self._chosen) >= _MOST_CHOICES:
            self._chosen.clear()
        chosen = [one for one in self._kinds if one.number in marks]
        self._chosen[marks] = chosen
        return chosen

    def _line(self, one: _Kind, text: str, prefix: prefixes.Prefix) -> _Told | None:
        """Return what a line of this kind tells; None where it is not of this kind."""
        kind, pattern = one.kind, one.pattern
        stream = self._streams.get(prefix.label)
        if kind.after and (stream is None or stream.last.get(pattern.name) not in kind.after):
            return None
        told = None
        for own in (text,) if prefix.rest == text else (text, prefix.rest):
            match = kind.regex.fullmatch(own)
            told = None if match is None else one.told(match)
            if told is not None:
                break
        if told is None:
            if kind.contains and kind.keep and stream is not None:
                # Torn, it seems: what it would have told is unknown, not as before.
                for key in kind.keep:
                    stream.kept.get(pattern.name, {}).pop(key, None)
            return None
        if one.follows:
            stream = self._streams.pop(prefix.label, None) or _Stream()
            self._streams[prefix.label] = stream
            if len(self._streams) > _MOST_LABELS:
                del self._streams[next(iter(self._streams))]
            stream.last[pattern.name] = kind.name
            _take_and_keep(stream.kept.setdefault(pattern.name, {}), pattern, kind, told)
        if told.phase:
            told.values = _in_phase(told.values, told.phase)
        return told


def _take_and_keep(
    kept: dict[str, _Kept], pattern: records.Pattern, kind: records.LineKind, told: _Told
) -> None:
    """Complete what a line tells by what was kept, and keep what it tells about lines after it."""
    for key in kind.takes:
        known = bool(told.phase) if key == records.PHASE else key in told.context
        if known or key not in kept:
            continue
        if kept[key].taker is not None and not _follows(pattern, kind, kept[key].taker):
            # The line that told the next value was lost, so this one is over.
            del kept[key]
            continue
        value = kept[key].value
        if isinstance(value, str):
            told.phase = value
        else:
            told.context[key] = value
        if kept[key].taker is not None:
            kept[key].taker = kind.name
    for key, how in kind.keep.items():
        kept_value = told.phase if key == records.PHASE else told.context.get(key)
        if kept_value is not None and kept_value != "":
            kept[key] = _Kept(value=kept_value, taker="" if how is records.Keep.ONCE else None)
        elif how is records.Keep.ONCE:
            kept.pop(key, None)


def _follows(pattern: records.Pattern, kind: records.LineKind, taker: str | None) -> bool:
    """Tell whether the program prints this kind of line after the one that took the value last."""
    kinds = [other.name for other in pattern.lines]
    return not taker or (taker in kinds and kinds.index(kind.name) > kinds.index(taker))


class _Meaning(NamedTuple):
    """What a group or a field of a line is."""

    #: "": nothing
    name: str
    unit: str
    #: name and unit of the metrics it becomes
    keys: tuple[tuple[str, str], ...]
    #: it is told by the line's other numbers, or instead of being one
    special: bool


class _Kind:
    """A kind of line of a pattern, made ready for many lines."""

    def __init__(self, number: int, pattern: records.Pattern, kind: records.LineKind) -> None:
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

    def told(self, match: re.Match[str]) -> _Told | None:
        """Return what a fitting line tells; None where its fields have not their form."""
        kind, groups = self.kind, match.groupdict()
        told = _Told(values={}, context={})
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
                    _make_room(self._groups)
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

    def _laid_out(self, told: _Told, text: str) -> bool:
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

    def _taken_apart(self, told: _Told, text: str) -> bool:
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
            _make_room(self._fields)
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
        keys=tuple((one, shown) for one in every if one not in records.SURROUNDINGS),
        special=name in records.SURROUNDINGS or name in records.CONTEXT,
    )


def _in_phase(values: Mapping[tuple[str, str], float], phase: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for (name, unit), value in values.items():
        new = names.in_phase(name, phase)
        # A rate is the throughput of training alone.
        rate = name == "throughput" and any([(one, unit) in values for one in names.RATES])
        if new == name or not rate:
            found.setdefault((new, unit), value)
    return found


def _firsts(
    values: Mapping[tuple[str, str], float], before: Collection[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return of each metric the first, less those that were told before."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for metric in values:
        if _key(*metric) not in before:
            found.setdefault(_key(*metric), metric)
    return {metric: values[metric] for metric in found.values()}


def _key(name: str, unit: str) -> tuple[str, str]:
    # Some tell images/s and TFLOP/s, and both are throughput.
    return name, unit if name == "throughput" else ""


def _make_room(remembered: dict[Any, Any]) -> None:
    if len(remembered) >= _MOST_CHOICES:
        remembered.clear()


def _add(told: _Told, meaning: _Meaning, value: float | None, text: str) -> None:
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


def _restored(state: Mapping[str, Any]) -> tuple[int, bool, dict[str, _Stream]]:
    """Return a stored state; one that is not of our making is as good as none."""
    try:
        streams = {
            str(label): _Stream(
                last={str(name): str(kind) for name, kind in stream["last"].items()},
                kept={
                    str(name): {
                        str(key): _Kept(
                            value=value if isinstance(value, str) else int(value),
                            taker=None if taker is None else str(taker),
                        )
                        for key, (value, taker) in context.items()
                    }
                    for name, context in stream["kept"].items()
                },
            )
            for label, stream in state["streams"].items()
        }
        return int(state["attempt"]), bool(state["known"]), streams
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0, False, {}
