"""A report as a table: columns with cells for people and values for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator import scaling
from orchestrator.reports import display, records


class Line(NamedTuple):
    """A row of the table."""

    report: records.Report
    curve: records.Curve
    row: records.Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column."""

    name: str
    #: cell for people
    text: Callable[[Line], str]
    #: values for programs, by name
    values: Callable[[Line], Mapping[str, object]]
    #: only shown if asked for, because a table has to fit a terminal
    is_extra: bool = False


def _column(
    name: str,
    value: Callable[[records.Row], Any],
    text: Callable[[Any], str] = str,
    *,
    key: str | None = None,
    encode: Callable[[Any], object] = lambda value: value,
    is_extra: bool = False,
) -> Column:
    """Return a column of one value; `key` is its name for programs, `encode` its form for them."""

    def cell(line: Line) -> str:
        found = value(line.row)
        return "" if found is None else text(found)

    return Column(
        name=name,
        text=cell,
        values=lambda line: {key or name: encode(value(line.row))},
        is_extra=is_extra,
    )


def _estimate(
    name: str,
    value: Callable[[records.Row], scaling.Estimate | None],
    text: Callable[[scaling.Estimate], str] = display.interval,
    *,
    is_extra: bool = False,
) -> Column:
    """Return a column of an estimate; programs get the ends of its interval too."""

    def values(line: Line) -> Mapping[str, object]:
        found = value(line.row)
        return {
            name: found and found.value,
            f"{name}_low": found and found.low,
            f"{name}_high": found and found.high,
        }

    plain = _column(name, value, text, is_extra=is_extra)
    return dataclasses.replace(plain, values=values)


def _joined(values: Sequence[object]) -> str | None:
    return ";".join(map(str, values)) or None


def _configuration(line: Line) -> str:
    name = "" if line.row.shared else line.curve.name
    return ", ".join(filter(None, (display.size(line.row.point.size, line.report.unit), name)))


def _curve(line: Line) -> str:
    return "all" if line.row.shared else line.curve.name


def _sources(sources: Sequence[str]) -> str:
    words = {"jsonl": "measured", "file": "given"}
    return ", ".join(words.get(name, f"parsed ({name.removeprefix('log:')})") for name in sources)


COLUMNS: tuple[Column, ...] = (
    Column(
        name="configuration",
        text=_configuration,
        values=lambda line: {"configuration": _configuration(line)},
        is_extra=True,
    ),
    Column(name="curve", text=_curve, values=lambda line: {"curve": _curve(line)}),
    Column(
        name="size",
        text=lambda line: str(line.row.point.size),
        values=lambda line: {line.report.unit: line.row.point.size},
    ),
    _column(
        "nodes", lambda row: row.nodes, lambda nodes: " or ".join(map(str, nodes)), encode=_joined
    ),
    _column("runs", lambda row: len(row.measurements)),
    _column("windows", lambda row: row.point.windows, lambda n: str(n or ""), is_extra=True),
    _estimate("throughput", lambda row: row.point.throughput),
    _column("interval_of", lambda row: row.point.interval_of, is_extra=True),
    _estimate("speedup", lambda row: row.point.speedup, lambda e: display.number(e.value)),
    _estimate(
        "efficiency", lambda row: row.point.efficiency, lambda e: display.interval(e, "share")
    ),
    _estimate("serial_share", lambda row: row.point.serial_fraction, is_extra=True),
    _column("epoch_time", lambda row: row.epoch_seconds, display.seconds, key="epoch_seconds"),
    _column("gpu_hours_per_epoch", lambda row: row.gpu_hours_per_epoch, display.number),
    _column(
        "total_time",
        lambda row: row.median("total_seconds"),
        display.seconds,
        key="total_seconds",
        is_extra=True,
    ),
    _column(
        "data_wait", lambda row: row.median("data_wait_share"), display.share, key="data_wait_share"
    ),
    _column(
        "memory",
        lambda row: row.memory_bytes,
        display.gibibytes,
        key="memory_bytes",
        encode=lambda values: _joined([f"{value:.0f}" for value in values]),
    ),
    _column("utilisation", lambda row: row.median("utilisation"), display.share),
    _column("accuracy", lambda row: row.median("accuracy"), display.number),
    _column(
        "source",
        lambda row: [*dict.fromkeys(run.source for run in row.measurements)],
        _sources,
        encode=_joined,
        is_extra=True,
    ),
)
NAMES = tuple(column.name for column in COLUMNS)


def lines(report: records.Report) -> list[Line]:
    """Return the rows in their order; a baseline shared by all curves appears once."""
    listed: dict[tuple[object, ...], Line] = {}
    for index, curve in enumerate(report.curves):
        for row in curve.rows:
            key = (None if row.shared else index, *map(id, row.measurements))
            listed.setdefault(key, Line(report, curve, row))
    return list(listed.values())


def chosen(report: records.Report, names: Sequence[str] = ()) -> list[Column]:
    """Return the named columns, or those for a terminal that are not empty in this report."""
    return [column for column in everything(report, names) if names or not column.is_extra]


def everything(report: records.Report, names: Sequence[str] = ()) -> list[Column]:
    """Return the named columns, or all that are not empty in this report."""
    if names:
        return [COLUMNS[NAMES.index(name)] for name in names]
    shown = lines(report)
    return [
        column
        for column in COLUMNS
        if column.name != "configuration" and any(map(column.text, shown))
    ]


def texts(report: records.Report, columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return the cells for people, by title."""
    return [
        {title(column, report): column.text(line) for column in columns} for line in lines(report)
    ]


def values(report: records.Report, columns: Sequence[Column]) -> list[dict[str, object]]:
    """Return the values for programs, by name."""
    return [
        {
            # exp(log(x)) is not exactly x: 0.9499999999999996.
            name: float(f"{value:.10g}") if isinstance(value, float) else value
            for column in columns
            for name, value in column.values(line).items()
        }
        for line in lines(report)
    ]


def title(column: Column, report: records.Report) -> str:
    """Return the heading of a column."""
    return report.unit if column.name == "size" else column.name
