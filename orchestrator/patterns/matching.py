"""Lines of a log -> metrics, with what one line says about the next."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.patterns import fields, names, numbers, prefixes, records

#: Longer lines hold no metrics that people print; it also bounds what a slow regex can cost.
MATCH_CAP_CHARACTERS = 4096
#: Ranks whose lines are kept apart; of more the one that was silent longest is forgotten.
_MOST_LABELS = 1024
#: "Epoch 1/5" alone is a line of many programs, and says not whose log this is.
_COUNTERS = ("epoch", "step")

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


@dataclasses.dataclass
class _Told:
    """What a line tells, before it is a metric."""

    values: list[tuple[str, float, str]]
    context: dict[str, int]
    phase: str = ""
    time: datetime.datetime | None = None


class Matcher:
    """Finds metrics in the lines of one log; its state goes on from one process to the next."""

    def __init__(
        self, patterns: Sequence[records.Pattern], state: Mapping[str, Any] | None = None
    ) -> None:
        self._specific = tuple(pattern for pattern in patterns if not pattern.generic)
        self._generic = tuple(pattern for pattern in patterns if pattern.generic)
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

    def match(
        self, text: str, *, attempt: int = 0, path: str = "", line: int | None = None
    ) -> list[jobs.Metric]:
        """Return the metrics of a line; of two patterns that find the same one the first wins.

        Lines must come in the log's order. A NaN says that there was no finite number. Generic
        patterns count until another one has found something.
        """
        if attempt != self._attempt:
            self._attempt = attempt
            self._streams = {}
        if len(text) > MATCH_CAP_CHARACTERS:
            return []
        # Keras goes back by \b over what it wrote.
        text = text.rstrip(" \t\r\n\v\f\b")
        prefix: prefixes.Prefix | None = None
        found: dict[tuple[str, str], jobs.Metric] = {}
        for patterns in (self._specific, self._generic):
            if patterns is self._generic and (found or self._known):
                break
            for pattern in patterns:
                for kind in pattern.lines:
                    if kind.contains and not any(part in text for part in kind.contains):
                        continue
                    prefix = prefix or prefixes.split(text)
                    told = self._line(pattern, kind, text, prefix)
                    if told is None:
                        continue
                    for name, value, unit in told.values:
                        found.setdefault(
                            # Some tell images/s and TFLOP/s, and both are throughput.
                            (name, unit if name == "throughput" else ""),
                            jobs.Metric(
                                name=name,
                                value=value,
                                unit=unit,
                                step=told.context.get("step"),
                                epoch=told.context.get("epoch"),
                                rank=told.context.get("rank", prefix.rank),
                                world_size=told.context.get("world_size"),
                                time=told.time or prefix.time,
                                attempt=attempt,
                                source=pattern.source,
                                path=path,
                                line=line,
                            ),
                        )
                    break
            if any(metric.name not in _COUNTERS for metric in found.values()):
                self._known = self._known or patterns is self._specific
        return list(found.values())

    def _line(
        self,
        pattern: records.Pattern,
        kind: records.LineKind,
        text: str,
        prefix: prefixes.Prefix,
    ) -> _Told | None:
        """Return what a line of this kind tells; None where it is not of this kind."""
        stream = self._streams.get(prefix.label)
        if kind.after and (stream is None or stream.last.get(pattern.name) not in kind.after):
            return None
        match = kind.regex.fullmatch(text)
        if match is None and prefix.rest != text:
            match = kind.regex.fullmatch(prefix.rest)
        told = None if match is None else _told(kind, match)
        if match is None or told is None:
            if kind.contains and kind.keep and stream is not None:
                # Torn, it seems: what it would have told is unknown, not as before.
                for key in kind.keep:
                    stream.kept.get(pattern.name, {}).pop(key, None)
            return None
        if pattern.follows:
            stream = self._streams.pop(prefix.label, None) or _Stream()
            self._streams[prefix.label] = stream
            if len(self._streams) > _MOST_LABELS:
                del self._streams[next(iter(self._streams))]
            stream.last[pattern.name] = kind.name
            _take_and_keep(stream.kept.setdefault(pattern.name, {}), pattern, kind, told)
        told.values = list(_final(kind, told))
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


def _told(kind: records.LineKind, match: re.Match[str]) -> _Told | None:
    """Return what a fitting line tells; None where its fields have not their form."""
    groups = match.groupdict()
    told = _Told(values=[], context={})
    for key in records.CONTEXT:
        count = numbers.integer(groups.get(key) or "")
        if count is not None and count >= 0:
            told.context[key] = count
    told.phase = groups.get(records.PHASE) or ""
    for name, meant in kind.metrics.items():
        value = numbers.of_kind(groups.get(name) or "", kind.kinds.get(name))
        if value is not None:
            shown = groups.get(name + records.UNIT_SUFFIX) or meant.unit
            _add(told, records.Value(name=meant.name, unit=shown), value, groups[name] or "")
    if kind.form is None:
        return told
    read = fields.read(kind, groups.get(records.FIELDS) or "")
    if read is None:
        return None
    if kind.pair:
        read = fields.paired(read, kind.pair)
    for field in read:
        meant_by = _meant(kind, field)
        if meant_by is not None:
            _add(told, meant_by, numbers.number(field.text), field.text)
    told_names = {name for name, _, _ in told.values}
    if not all(told_names.intersection(names) for names in kind.needs):
        return None
    return told


def _meant(kind: records.LineKind, field: fields.Field) -> records.Value | None:
    value = kind.fields.get(field.key)
    if value is None:
        name = names.known(field.key)
        if name is None:
            name = names.snake(field.key) if kind.others else ""
        value = records.Value(name=name)
    if not value.name:
        return None
    return dataclasses.replace(value, unit=field.unit) if field.unit else value


def _add(told: _Told, meant: records.Value, value: float | None, text: str) -> None:
    """Add a number, or what surrounds the numbers of a line."""
    if meant.name == records.PHASE:
        told.phase = told.phase or text
    elif value is None:
        return
    elif meant.name == records.TIME:
        seconds = value / 1000 if meant.unit == "ms" else value
        if 0 < seconds < _LAST_SECOND:
            told.time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    else:
        if meant.name in records.CONTEXT:
            count = numbers.whole(value)
            if count is not None:
                told.context.setdefault(meant.name, count)
        if meant.name not in records.SURROUNDINGS:
            told.values.append((meant.name, value, meant.unit[: numbers.UNIT_CHARACTERS]))


def _final(kind: records.LineKind, told: _Told) -> Iterator[tuple[str, float, str]]:
    for name, value, unit in told.values:
        name = names.in_phase(name, told.phase)
        yield name, value, unit
        if name in names.RATES:
            yield "throughput", value, unit


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
