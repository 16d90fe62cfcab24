"""Lines of a log -> metrics, with what one line says about the next."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import jobs
from orchestrator.patterns import numbers, records

#: Longer lines hold no metrics that people print; it also bounds what a slow regex can cost.
MATCH_CAP_CHARACTERS = 4096


@dataclasses.dataclass
class _Kept:
    """A value that a line told about those that follow."""

    value: int
    #: kind of line that took it last; "": none yet; None: any may take it, any number of times
    taker: str | None


class Matcher:
    """Finds metrics in the lines of one log; its state goes on from one process to the next."""

    def __init__(
        self, patterns: Sequence[records.Pattern], state: Mapping[str, Any] | None = None
    ) -> None:
        self._patterns = tuple(patterns)
        self._attempt, self._kept, self._last = _restored(state or {})

    @property
    def state(self) -> dict[str, Any]:
        """Return what holds for the lines that follow, ready for JSON."""
        return {
            "attempt": self._attempt,
            "last": dict(self._last),
            "kept": {
                name: {key: [kept.value, kept.taker] for key, kept in context.items()}
                for name, context in self._kept.items()
            },
        }

    def match(
        self, text: str, *, attempt: int = 0, path: str = "", line: int | None = None
    ) -> list[jobs.Metric]:
        """Return the metrics of a line; of two patterns that find the same name the first wins.

        Lines must come in the log's order. A NaN says that there was no finite number.
        """
        if attempt != self._attempt:
            self._attempt = attempt
            self._kept, self._last = {}, {}
        if len(text) > MATCH_CAP_CHARACTERS:
            return []
        text = text.rstrip()
        found: dict[str, jobs.Metric] = {}
        for pattern in self._patterns:
            for kind in pattern.lines:
                if kind.contains not in text:
                    continue
                if kind.after and self._last.get(pattern.name) not in kind.after:
                    continue
                match = kind.regex.fullmatch(text)
                if match is None:
                    if kind.contains:
                        # Torn, it seems: what it would have told is unknown, not as before.
                        self._forget(pattern, kind)
                    continue
                self._last[pattern.name] = kind.name
                context = self._context(pattern, kind, match)
                for name, value, unit in _values(kind, match):
                    found.setdefault(
                        name,
                        jobs.Metric(
                            name=name,
                            value=value,
                            unit=unit,
                            step=context.get("step"),
                            epoch=context.get("epoch"),
                            rank=context.get("rank"),
                            world_size=context.get("world_size"),
                            attempt=attempt,
                            source=pattern.source,
                            path=path,
                            line=line,
                        ),
                    )
                break
        return list(found.values())

    def _context(
        self, pattern: records.Pattern, kind: records.LineKind, match: re.Match[str]
    ) -> dict[str, int]:
        """Return the line's epoch, step, ... and keep what it tells about lines that follow."""
        groups = match.groupdict()
        context: dict[str, int] = {}
        for key in records.CONTEXT:
            value = numbers.integer(groups.get(key) or "")
            if value is not None and value >= 0:
                context[key] = value
        kept = self._kept.setdefault(pattern.name, {})
        for key in kind.takes:
            if key in context or key not in kept:
                continue
            if kept[key].taker is None:
                context[key] = kept[key].value
            elif _follows(pattern, kind, kept[key].taker):
                context[key] = kept[key].value
                kept[key].taker = kind.name
            else:
                # The line that told the next value was lost, so this one is over.
                del kept[key]
        for key, how in kind.keep.items():
            if key in context:
                taker = "" if how is records.Keep.ONCE else None
                kept[key] = _Kept(value=context[key], taker=taker)
            elif how is records.Keep.ONCE:
                kept.pop(key, None)
        return context

    def _forget(self, pattern: records.Pattern, kind: records.LineKind) -> None:
        for key in kind.keep:
            self._kept.get(pattern.name, {}).pop(key, None)


def _follows(pattern: records.Pattern, kind: records.LineKind, taker: str | None) -> bool:
    """Tell whether the program prints this kind of line after the one that took the value last."""
    names = [other.name for other in pattern.lines]
    return not taker or (taker in names and names.index(kind.name) > names.index(taker))


def _values(kind: records.LineKind, match: re.Match[str]) -> list[tuple[str, float, str]]:
    groups = match.groupdict()
    values = []
    for name, unit in kind.metrics.items():
        value = numbers.number(groups.get(name) or "")
        if value is not None:
            shown = groups.get(name + records.UNIT_SUFFIX) or unit
            values.append((name, value, shown[: numbers.UNIT_CHARACTERS]))
    return values


def _restored(
    state: Mapping[str, Any],
) -> tuple[int, dict[str, dict[str, _Kept]], dict[str, str]]:
    """Return a stored state; one that is not of our making is as good as none."""
    try:
        kept = {
            str(name): {
                str(key): _Kept(value=int(value), taker=None if taker is None else str(taker))
                for key, (value, taker) in context.items()
            }
            for name, context in state["kept"].items()
        }
        last = {str(name): str(kind) for name, kind in state["last"].items()}
        return int(state["attempt"]), kept, last
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0, {}, {}
