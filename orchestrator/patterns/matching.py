"""Matches the lines of a log against patterns. A line may say what later lines belong to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from orchestrator import jobs, metrics
from orchestrator.patterns import extraction, prefilter, prefixes, records
from orchestrator.text import expressions

#: Longer lines are ignored. This also limits the time that a slow regex takes. DETR and its
#: descendants write an epoch as one line of JSON with up to 8,000 characters.
MAX_LINE_CHARACTERS = 16 * 1024
#: A carriage return, as editors show it.
_PRINTED_RETURN = "^M"
#: Between a progress bar and what was printed right behind it, which is a line of its own.
_BAR_END = re.compile(
    r"(?<=\])(?=[^\s\]\[)}|,:;.]|[ ]*\[?(?:[0-9]{2,4}[/:-][0-9]{2}|(?:DEBUG|INFO|WARNING)\b))"
)
_BAR = re.compile(r"\[[0-9:]+<[^\[\]]*\]")
#: Ranks with a state of their own; the least recently seen one is dropped.
_MAX_STREAMS = 1024
#: After so many slow regexes of users in one log, all regexes of users are skipped.
_MAX_SLOW = 10
#: Metrics that many programs print: they do not show that a pattern fits the log.
_COMMON = frozenset(("batch", "epoch", "step", "total_time"))


class _Stream(TypedDict):
    """What the lines of one rank mean for later ones."""

    #: pattern -> kind of its last line
    last: dict[str, str]
    #: pattern -> name -> value for later lines, and the line kind that took it last: "" before the
    #: first one, None if any may take it any number of times
    kept: dict[str, dict[str, list[Any]]]
    #: of the last table
    columns: list[str]


class Matcher:
    """Finds metrics in the lines of one log. Its state can be stored and resumed."""

    def __init__(
        self, patterns: Sequence[records.Pattern], state: Mapping[str, Any] | None = None
    ) -> None:
        ordered = sorted(patterns, key=lambda pattern: pattern.generic)
        self._extractors = [
            extraction.Extractor(pattern, kind) for pattern in ordered for kind in pattern.lines
        ]
        by_text: dict[str, list[int]] = {}
        for number, extractor in enumerate(self._extractors):
            for text in extractor.kind.required or ("",):
                by_text.setdefault(text, []).append(number)
        self._by_text = list(by_text.values())
        self._texts_in = prefilter.text_finder(list(by_text))
        #: extractor whose regex was too slow -> message; "": skipped because of others
        self._slow: dict[int, str] = {}
        copy = json.loads(json.dumps(state or {}))
        self._attempt: int = copy.get("attempt", 0)
        #: whether generic patterns no longer count
        # Version 1 stored it as "known".
        self._is_complete: bool = copy.get("complete", copy.get("known") is True)
        self._streams: dict[str, _Stream] = copy.get("streams", {})
        for stream in self._streams.values():
            stream.setdefault("columns", [])

    @property
    def state(self) -> dict[str, Any]:
        """A copy of what the lines so far mean for later ones, as JSON stores it."""
        state = {
            "attempt": self._attempt,
            "complete": self._is_complete,
            "streams": self._streams,
        }
        copy: dict[str, Any] = json.loads(json.dumps(state))
        return copy

    @property
    def slow(self) -> list[str]:
        """A message for each regex that was too slow."""
        return [message for message in self._slow.values() if message]

    def metrics_of_line(
        self, text: str, *, attempt: int = 0, path: str = "", line: int | None = None
    ) -> list[jobs.Metric]:
        """Return the metrics of a line one by one."""
        lines = self.parse_line(text, attempt=attempt, path=path, line=line)
        return [metric for parsed in lines for metric in parsed.metrics()]

    def parse_line(
        self, text: str, *, attempt: int = 0, path: str = "", line: int | None = None
    ) -> list[metrics.ParsedLine]:
        """Return the metrics of a line, per pattern. Lines must come in the log's order.

        If two patterns find the same metric, the first one counts. NaN: the log shows no finite
        number. Generic patterns count until a complete pattern has found something.
        """
        if attempt != self._attempt:
            self._attempt, self._streams = attempt, {}
        # A terminal's output was pasted: its progress bars overwrite each other.
        parts = text.split(_PRINTED_RETURN)
        if len(parts) == 1:
            if len(text) > MAX_LINE_CHARACTERS:
                return []
            if "<" in text and (bar := _BAR.search(text)) and _BAR_END.match(text, bar.end()):
                parts = [text[: bar.end()], text[bar.end() :]]
        if len(parts) > 1:
            return [
                parsed
                for part in parts
                for parsed in self.parse_line(part, attempt=attempt, path=path, line=line)
            ]
        # Keras prints \b to overwrite its output.
        text = text.rstrip(" \t\r\n\v\f\b")
        prefix: prefixes.Prefix | None = None
        matched: records.Pattern | None = None
        known: extraction.Names = ()
        parsed: list[metrics.ParsedLine] = []
        candidates = {n for index in self._texts_in(text) for n in self._by_text[index]}
        for number in sorted(candidates):
            pattern = self._extractors[number].pattern
            if pattern is matched or number in self._slow:
                continue
            has_metrics = not {name for name, _ in known} <= _COMMON
            if pattern.generic and (self._is_complete or has_metrics):
                break
            prefix = prefix or prefixes.split(text)
            values = self._extract(number, text, prefix)
            if values is None:
                continue
            matched = pattern
            names, indexes = extraction.new_names(tuple(values.metrics), known)
            if not names:
                continue
            known += names
            numbers = tuple(values.metrics.values())
            parsed.append(
                metrics.ParsedLine(
                    path=path,
                    source=pattern.source,
                    attempt=attempt,
                    rank=values.context.get("rank", prefix.rank),
                    world_size=values.context.get("world_size"),
                    names=names,
                    step=values.context.get("step"),
                    epoch=values.context.get("epoch"),
                    time=values.time or prefix.time,
                    line=line,
                    values=tuple([numbers[index] for index in indexes]),
                )
            )
            self._is_complete |= pattern.complete and not {n for n, _ in names} <= _COMMON
        return parsed

    def _extract(
        self, number: int, text: str, prefix: prefixes.Prefix
    ) -> extraction.LineValues | None:
        """Return the values of a line with those kept for it; None if its kind does not match."""
        extractor = self._extractors[number]
        kind, pattern = extractor.kind, extractor.pattern
        stream = self._streams.get(prefix.label)
        if kind.after and (stream is None or stream["last"].get(pattern.name) not in kind.after):
            return None
        values = None
        columns = stream["columns"] if stream is not None else ()
        try:
            texts = (prefix.rest,) if kind.form == "general" else (text, prefix.rest)
            for own_text in dict.fromkeys(texts):
                match = kind.compiled.fullmatch(own_text)
                values = None if match is None else extractor.extract(match, columns)
                if values is not None:
                    break
        except expressions.TooSlowError as error:
            self._skip(number, error)
            return None
        if values is None:
            if kind.texts and stream is not None:
                # Probably cut off: then its new value is unknown, and the old one no longer holds.
                for key in kind.keep:
                    stream["kept"].get(pattern.name, {}).pop(key, None)
            return None
        if pattern.has_context:
            stream = self._streams.pop(prefix.label, None)
            stream = stream or {"last": {}, "kept": {}, "columns": []}
            self._streams[prefix.label] = stream
            if len(self._streams) > _MAX_STREAMS:
                del self._streams[next(iter(self._streams))]
            stream["last"][pattern.name] = kind.name
            if values.columns:
                stream["columns"] = list(values.columns)
            _take_and_keep(stream["kept"].setdefault(pattern.name, {}), pattern, kind, values)
        if values.phase:
            values.metrics = extraction.in_phase(values.metrics, values.phase)
        return values

    def _skip(self, number: int, error: expressions.TooSlowError) -> None:
        """Skip a slow regex from now on; after some of them, all regexes of users."""
        pattern, kind = self._extractors[number].pattern, self._extractors[number].kind
        self._slow[number] = (
            f'pattern {pattern.name}, line "{kind.name}" ({pattern.origin}): its regex took '
            f"{error} and is not used for the rest of this read. Simplify it: fewer alternatives "
            "and repeats within repeats, no lookaround and no back-references"
        )
        if len(self._slow) == _MAX_SLOW:
            for other, extractor in enumerate(self._extractors):
                if not extractor.kind.shipped:
                    self._slow.setdefault(other, "")


def _take_and_keep(
    kept: dict[str, list[Any]],
    pattern: records.Pattern,
    kind: records.LineKind,
    values: extraction.LineValues,
) -> None:
    """Complete a line by values kept for it, and keep its values for later lines."""
    for key in kind.takes:
        has_own = bool(values.phase) if key == records.PHASE else key in values.context
        if has_own or key not in kept:
            continue
        value, taken_by = kept[key]
        if taken_by is not None:
            if not _is_later(pattern, kind, taken_by):
                # The line with the next value is missing, so this one no longer holds.
                del kept[key]
                continue
            kept[key][1] = kind.name
        if key == records.PHASE:
            values.phase = value
        else:
            values.context[key] = value
    for key, how in kind.keep.items():
        new = values.phase if key == records.PHASE else values.context.get(key)
        if new is not None and new != "":
            kept[key] = [new, "" if how == "once" else None]
        elif how == "once":
            kept.pop(key, None)


def _is_later(pattern: records.Pattern, kind: records.LineKind, taken_by: str) -> bool:
    """Tell whether the program prints this line kind after the one that took the value."""
    order = [line.name for line in pattern.lines]
    return not taken_by or (taken_by in order and order.index(kind.name) > order.index(taken_by))
