"""How far a run was exported into files: kept beside them."""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.trackers.series import Segment, Series

_FOLDER = re.compile(r"(?:offline-run-\w[\w.-]*)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    #: what was exported of each series, by name
    series: Mapping[str, Sequence[Segment]] = dataclasses.field(default_factory=dict)
    #: TensorBoard: size of the file
    size_bytes: int = 0
    #: W&B: rows in all folders
    rows: int = 0
    #: W&B: how often the run was begun, because a later attempt replaced exported values
    generation: int = 0
    #: W&B: the newest folder
    folder: str = ""


def to_json(progress: Progress) -> bytes:
    return json.dumps(vars(progress)).encode()


def from_json(text: bytes) -> Progress:
    """Return what to_json() wrote; raises ValueError for other content."""
    try:
        data: dict[str, Any] = json.loads(text)
        data["series"] = {
            name: [Segment(*map(int, each)) for each in segments]
            for name, segments in data["series"].items()
        }
        progress = Progress(**data)
        numbers = progress.size_bytes, progress.rows, progress.generation
        if min(map(operator.index, numbers)) < 0 or not _FOLDER.fullmatch(progress.folder):
            raise ValueError("not the progress of an export")
        return progress
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not the progress of an export: {error}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """What is to be exported."""

    #: each series, and the index of its first value that was not exported
    series: Sequence[tuple[Series, int]]
    #: exported values that a later attempt replaced begin here; None: there are none
    replaced_from: int | None

    @property
    def added(self) -> int:
        return sum(len(series.steps) - kept for series, kept in self.series)


def changes(known: Progress, series: Iterable[Series]) -> Changes:
    by_name = {each.name: each for each in series}
    kept = {name: each.exported(known.series.get(name, ())) for name, each in by_name.items()}
    replaced: list[int] = []
    for name, segments in known.series.items():
        if name not in by_name:
            replaced.append(_first_step(by_name.values()))
        elif kept[name] < sum(segment.size for segment in segments):
            # The value that replaces them has the lowest of their steps, or a lower one; without
            # one the log was parsed again.
            after = by_name[name].steps[kept[name] :]
            replaced.append(min(after) if after else _first_step(by_name.values()))
    return Changes(
        series=[(each, kept[name]) for name, each in by_name.items()],
        replaced_from=min(replaced, default=None),
    )


def done(series: Iterable[Series], **fields: Any) -> Progress:
    return Progress(series={each.name: each.segments() for each in series}, **fields)


def _first_step(series: Iterable[Series]) -> int:
    return min((min(each.steps, default=0) for each in series), default=0)
