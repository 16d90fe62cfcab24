"""A report as a table: columns with cells for people and values for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.reports import display, records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    value: Callable[[records.Row], Any]
    #: cell for people
    text: Callable[[Any], str] = str
    #: name for programs; "": the heading
    key: str = ""
    #: value for programs
    encode: Callable[[Any], object] = lambda value: value
    #: programs get the ends of its interval too
    is_estimate: bool = False
    #: only shown if asked for, because a table has to fit a terminal
    is_extra: bool = False
    #: left out of a table on a narrow terminal, 1 first; None: never
    drop: int | None = None
    #: words, which may continue on the next line
    is_text: bool = False

    def cell(self, row: records.Row) -> str:
        value = self.value(row)
        return "" if value is None else self.text(value)

    def heading(self, row: records.Row) -> str:
        return row.unit if self.name == "size" else self.name

    def values(self, row: records.Row) -> dict[str, object]:
        value = self.value(row)
        if not self.is_estimate:
            return {self.key or self.heading(row): self.encode(value)}
        ends = {"": "value", "_low": "low", "_high": "high"}
        return {f"{self.name}{end}": value and getattr(value, name) for end, name in ends.items()}


def _configuration(row: records.Row) -> str:
    name = "" if row.shared else row.curve
    return ", ".join(filter(None, (display.size(row.point.size, row.unit), name)))


def _joined(values: Sequence[object]) -> str | None:
    return ";".join(map(str, values)) or None


def _sources(sources: Sequence[str]) -> str:
    words = {"jsonl": "measured", "file": "given"}
    return ", ".join(words.get(name, f"parsed ({name.removeprefix('log:')})") for name in sources)


def _estimate(name: str, text: Callable[[Any], str] = display.interval, **options: Any) -> Column:
    options = {"value": lambda row: getattr(row.point, name), **options}
    return Column(name=name, text=text, is_estimate=True, **options)


def _median(name: str, field: str, text: Callable[[Any], str], **options: Any) -> Column:
    return Column(name=name, value=lambda row: row.median(field), text=text, key=field, **options)


COLUMNS: tuple[Column, ...] = (
    Column(name="configuration", value=_configuration, is_extra=True, is_text=True),
    Column(name="curve", value=lambda row: "all" if row.shared else row.curve, is_text=True),
    Column(name="size", value=lambda row: row.point.size),
    Column(
        name="nodes",
        value=lambda row: row.nodes,
        text=lambda nodes: " or ".join(map(str, nodes)),
        encode=_joined,
        drop=5,
    ),
    Column(name="runs", value=lambda row: len(row.measurements), drop=6),
    Column(
        name="windows",
        value=lambda row: row.point.windows,
        text=lambda number: str(number or ""),
        is_extra=True,
    ),
    _estimate("throughput"),
    Column(name="interval_of", value=lambda row: row.point.interval_of, is_extra=True),
    _estimate("speedup", lambda estimate: display.number(estimate.value), drop=9),
    _estimate("efficiency", lambda estimate: display.interval(estimate, "share")),
    _estimate("serial_share", value=lambda row: row.point.serial_fraction, is_extra=True),
    Column(
        name="epoch_time",
        value=lambda row: row.epoch_seconds,
        text=display.seconds,
        key="epoch_seconds",
        drop=7,
    ),
    Column(
        name="gpu_hours_per_epoch",
        value=lambda row: row.gpu_hours_per_epoch,
        text=display.number,
        drop=4,
    ),
    _median("total_time", "total_seconds", display.seconds, is_extra=True),
    _median("data_wait", "data_wait_share", display.share, drop=3),
    Column(
        name="memory",
        value=lambda row: row.memory_bytes,
        text=display.gibibytes,
        key="memory_bytes",
        encode=lambda values: _joined([f"{value:.0f}" for value in values]),
        drop=1,
    ),
    _median("utilisation", "utilisation", display.share, drop=2),
    _median("accuracy", "accuracy", display.number, drop=8),
    Column(
        name="source",
        value=lambda row: [*dict.fromkeys(run.source for run in row.measurements)],
        text=_sources,
        encode=_joined,
        is_extra=True,
        is_text=True,
    ),
)
NAMES = tuple(column.name for column in COLUMNS)


def rows(report: records.Report) -> list[records.Row]:
    """Return the rows in their order; a baseline shared by all curves appears once."""
    listed: dict[tuple[object, ...], records.Row] = {}
    for curve in report.curves:
        for row in curve.rows:
            key = (None if row.shared else curve.name, *map(id, row.measurements))
            listed.setdefault(key, row)
    return list(listed.values())


def filled(report: records.Report, *, with_extra: bool = True) -> list[str]:
    """Return the names of the columns that are not empty in this report."""
    return [
        column.name
        for column in COLUMNS
        if column.name != "configuration"
        and (with_extra or not column.is_extra)
        and any(map(column.cell, rows(report)))
    ]


def texts(report: records.Report, names: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the cells for people, by heading. Default: the columns for a terminal."""
    columns = shown(report, names)
    return [{column.heading(row): column.cell(row) for column in columns} for row in rows(report)]


def shown(report: records.Report, names: Sequence[str] = ()) -> list[Column]:
    """Return the columns with these names. Default: those for a terminal."""
    return _columns(names or filled(report, with_extra=False))


def values(report: records.Report, names: Sequence[str] = ()) -> list[dict[str, object]]:
    """Return the values for programs, by name. Default: all columns that are not empty."""
    columns = _columns(names or filled(report))
    return [
        {
            # exp(log(x)) is not exactly x: 0.9499999999999996.
            name: float(f"{value:.10g}") if isinstance(value, float) else value
            for column in columns
            for name, value in column.values(row).items()
        }
        for row in rows(report)
    ]


def _columns(names: Sequence[str]) -> list[Column]:
    return [COLUMNS[NAMES.index(name)] for name in names]
