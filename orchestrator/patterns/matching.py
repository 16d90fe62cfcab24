"""Lines of a log -> metrics, with what one line says about the next."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator import jobs
from orchestrator.patterns import (
    kinds,
    numbers,
    prefixes,
    records,
    scanning,
    shapes,
)
from orchestrator.text import expressions

#: Longer lines hold no metrics that people print; it also bounds what a slow regex can cost.
MATCH_CAP_CHARACTERS = 4096
#: Ranks whose lines are kept apart; of more the one that was silent longest is forgotten.
_MOST_LABELS = 1024

#: So many expressions of users may turn out to be slow in a log; then all of theirs are left out.
_MAX_SLOW = 10

#: "Epoch 1/5" alone is a line of many programs, and says not whose log this is.
_COUNTERS = frozenset(("epoch", "step"))

#: Shapes of lines that are made before any was of use; each use allows one more.
_SHAPES_AHEAD = 500


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
        numbered = scanning.numbered(patterns)
        # Generic ones come last, each group in the patterns' order.
        self._kinds = [
            kinds.Kind(number, pattern, kind)
            for number, pattern, kind in sorted(numbered, key=lambda one: one[1].generic)
        ]
        self._chosen: dict[tuple[int, ...], list[kinds.Kind]] = {}
        self._by_text: dict[str, list[int]] = {}
        for one in self._kinds:
            for text in one.kind.contains or ("",):
                self._by_text.setdefault(text, []).append(one.number)
        #: names of lines, each once in a line
        self._names: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}
        #: kinds of line, by number, whose expressions are no longer tried: why; "": after others
        self.slow: dict[int, str] = {}
        #: by the marks and what is left of a line without its digits; they hold while `_known` does
        self._shapes: dict[tuple[tuple[int, ...], bytes], shapes.Shape] = {}
        self._to_shape = _SHAPES_AHEAD
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
        raw = shapes.encoded(text)
        key = marks, shapes.of(raw)
        shape = self._shapes.get(key)
        if shape is not None:
            self._to_shape += 1
            return [_shaped(shape, raw)]
        readings = self._read(text, marks)
        if len(readings) == 1 and self._to_shape > 0:
            self._shape(key, text, readings[0])
        return readings

    def _read(self, text: str, marks: tuple[int, ...]) -> list[Reading]:
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
                before = {kinds.key(*name) for reading in readings for name in reading.names}
                told.values = kinds.firsts(told.values, before)
                names = tuple(told.values)
            if names:
                context = told.context
                # One object for alike lines: what is stored is looked up by it.
                kinds.make_room(self._names)
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
            if self._known:
                # Generic patterns count no more.
                self._shapes.clear()
        return readings

    def _shape(self, key: tuple[tuple[int, ...], bytes], text: str, reading: Reading) -> None:
        """Keep where the numbers of a line stand, if all lines of its shape tell alike."""
        self._to_shape -= 1
        prefix = prefixes.split(text)
        alike, rank = shapes.prefix_rank(text, prefix)
        if not alike:
            return
        found: kinds.Traced | None = None
        fitted: records.Pattern | None = None
        for one in self._chosen[key[0]]:
            if one.pattern is fitted:
                continue
            if one.pattern.generic and (self._known or found is not None):
                break
            if one.wide is None or one.kind.keep:
                # What looks like it and does not fit takes back what was kept.
                return
            try:
                match, place = one.match(text, prefix, one.wide)
            except expressions.TooSlowError:
                return
            if match is None:
                continue
            # Of two that fit, the second tells what the first does not.
            fits = (
                one.exact and one.stands_in(text) and found is None and one.told(match) is not None
            )
            found = one.traced(match, place) if fits else None
            if found is None:
                return
            fitted = one.pattern
        if found is None or (rank is not None and "rank" in found.counts):
            return
        if rank is not None:
            found.counts["rank"] = rank
        if set(found.values) >= set(reading.names):
            made = shapes.shape(text, reading.source, reading.names, found.values, found.counts)
            if made is not None and repr(_shaped(made, shapes.encoded(text))) == repr(reading):
                kinds.make_room(self._shapes)
                self._shapes[key] = made._replace(names=reading.names)

    def _choose(self, marks: tuple[int, ...]) -> list[kinds.Kind]:
        kinds.make_room(self._chosen)
        off = self.slow
        chosen = [one for one in self._kinds if one.number in marks and one.number not in off]
        self._chosen[marks] = chosen
        return chosen

    def _switch_off(self, slow: kinds.Kind, error: expressions.TooSlowError) -> None:
        """Leave out a slow expression from now on; after some of them, all expressions of users."""
        self.slow[slow.number] = slow.why_slow(error)
        if len(self.slow) == _MAX_SLOW:
            for one in self._kinds:
                if not one.kind.shipped:
                    self.slow.setdefault(one.number, "")
        self._chosen.clear()
        self._shapes.clear()

    def _line(self, one: kinds.Kind, text: str, prefix: prefixes.Prefix) -> kinds.Told | None:
        """Return what a line of this kind tells; None where it is not of this kind."""
        if one.number in self.slow:
            return None
        kind, pattern = one.kind, one.pattern
        stream = self._streams.get(prefix.label)
        if kind.after and (stream is None or stream.last.get(pattern.name) not in kind.after):
            return None
        told = None
        try:
            for own in (text,) if prefix.rest == text else (text, prefix.rest):
                match = kind.regex.fullmatch(own)
                told = None if match is None else one.told(match)
                if told is not None:
                    break
        except expressions.TooSlowError as error:
            self._switch_off(one, error)
            return None
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
            told.values = kinds.in_phase(told.values, told.phase)
        return told


def _take_and_keep(
    kept: dict[str, _Kept], pattern: records.Pattern, kind: records.LineKind, told: kinds.Told
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
    order = [other.name for other in pattern.lines]
    return not taker or (taker in order and order.index(kind.name) > order.index(taker))


def _shaped(shape: shapes.Shape, raw: bytes) -> Reading:
    """Return the numbers of a line of this shape."""
    # float() takes 1_234.
    texts = shape.texts(raw.replace(b",", b"_") if shape.commas else raw)
    found = tuple(map(float, texts))
    count = numbers.whole if shape.fractions else int
    return Reading(
        shape.source,
        None if shape.rank is None else count(found[shape.rank]),
        None if shape.world_size is None else count(found[shape.world_size]),
        None if shape.step is None else count(found[shape.step]),
        None if shape.epoch is None else count(found[shape.epoch]),
        None,
        shape.names,
        shape.values(found),
    )


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
