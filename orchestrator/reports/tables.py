"""A report as a table: the columns, their cells for people, and their numbers for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from orchestrator import scaling
from orchestrator.reports import display, records

_Line = tuple[records.Report, records.Curve, records.Row]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column."""

    name: str
    #: for people
    text: Callable[[records.Report, records.Curve, records.Row], str]
    #: for programs: name -> value
    values: Callable[[records.Report, records.Curve, records.Row], Mapping[str, object]]
    #: left out of tables for people unless it is asked for: those have to fit a terminal
    is_extra: bool = False


def _plain(
    name: str,
    value: Callable[[records.Row], object],
    text: Callable[[records.Row], str],
    machine: str | None = None,
    extra: bool = False,
) -> Column:
    return Column(
        name=name,
        text=lambda report, curve, row: text(row),
        values=lambda report, curve, row: {machine or name: value(row)},
        is_extra=extra,
    )


def _optional(
    name: str,
    value: Callable[[records.Row], float | None],
    shown: Callable[[float], str],
    machine: str | None = None,
    extra: bool = False,
) -> Column:
    def text(report: records.Report, curve: records.Curve, row: records.Row) -> str:
        found = value(row)
        return "" if found is None else shown(found)

    return Column(
        name=name,
        text=text,
        values=lambda report, curve, row: {machine or name: value(row)},
        is_extra=extra,
    )


def _estimated(
    name: str,
    value: Callable[[records.Row], scaling.Estimate | None],
    form: str = "number",
    *,
    ends: bool = True,
    extra: bool = False,
) -> Column:
    def text(report: records.Report, curve: records.Curve, row: records.Row) -> str:
        found = value(row)
        if found is None:
            return ""
        return display.interval(found, form) if ends else display.number(found.value)

    def values(
        report: records.Report, curve: records.Curve, row: records.Row
    ) -> Mapping[str, object]:
        found = value(row)
        return {
            name: None if found is None else found.value,
            f"{name}_low": None if found is None else found.low,
            f"{name}_high": None if found is None else found.high,
        }

    return Column(name=name, text=text, values=values, is_extra=extra)


def _configuration(report: records.Report, curve: records.Curve, row: records.Row) -> str:
    name = "" if row.shared else curve.name
    return ", ".join(filter(None, (display.size(row.point.gpus, report.unit), name)))


def _curve(report: records.Report, curve: records.Curve, row: records.Row) -> str:
    return "all" if row.shared else curve.name


def _how(row: records.Row) -> str:
    told = {"jsonl": "measured", "file": "given"}
    return ", ".join(told.get(one, f"parsed ({one.removeprefix('log:')})") for one in row.sources)


COLUMNS: tuple[Column, ...] = (
    Column(
        name="configuration",
        text=_configuration,
        values=lambda *line: {"configuration": _configuration(*line)},
        is_extra=True,
    ),
    Column(name="curve", text=_curve, values=lambda *line: {"curve": _curve(*line)}),
    Column(
        name="size",
        text=lambda report, curve, row: str(row.point.gpus),
        values=lambda report, curve, row: {report.unit: row.point.gpus},
    ),
    _plain(
        "nodes",
        lambda row: ";".join(map(str, row.nodes)) or None,
        lambda row: " or ".join(map(str, row.nodes)),
    ),
    _plain("runs", lambda row: len(row.measurements), lambda row: str(len(row.measurements))),
    _plain(
        "windows",
        lambda row: row.point.windows,
        lambda row: str(row.point.windows or ""),
        extra=True,
    ),
    _estimated("throughput", lambda row: row.point.throughput),
    Column(
        name="interval_of",
        text=lambda report, curve, row: row.point.interval_of,
        values=lambda report, curve, row: {"interval_of": row.point.interval_of},
        is_extra=True,
    ),
    _estimated("speedup", lambda row: row.point.speedup, ends=False),
    _estimated("efficiency", lambda row: row.point.efficiency, "share"),
    _estimated("serial_share", lambda row: row.point.serial_share, extra=True),
    _optional("epoch_time", lambda row: row.epoch_seconds, display.seconds, "epoch_seconds"),
    _optional("gpu_hours_per_epoch", lambda row: row.gpu_hours_per_epoch, display.number),
    _optional("total_time", lambda row: row.total_seconds, display.seconds, "total_seconds", True),
    _optional("data_wait", lambda row: row.data_wait_share, display.share, "data_wait_share"),
    _plain(
        "memory",
        lambda row: ";".join(f"{value:.0f}" for value in row.memory_bytes) or None,
        lambda row: display.gibibytes(row.memory_bytes),
        "memory_bytes",
    ),
    _optional("utilisation", lambda row: row.utilisation, display.share),
    _optional("accuracy", lambda row: row.accuracy, display.number),
    _plain("source", lambda row: ";".join(row.sources), _how, extra=True),
)
NAMES = tuple(column.name for column in COLUMNS)


def lines(report: records.Report) -> list[_Line]:
    """Return the rows in their order; a baseline that all curves share once."""
    found: list[_Line] = []
    seen: set[tuple[int, ...]] = set()
    for curve in report.curves:
        for row in curve.rows:
            key = tuple(map(id, row.measurements))
            if row.shared and key in seen:
                continue
            seen.add(key)
            found.append((report, curve, row))
    return found


def chosen(report: records.Report, names: Sequence[str] = ()) -> list[Column]:
    """Return the columns that were named, else those for people that say something here."""
    if names:
        return [COLUMNS[NAMES.index(name)] for name in names]
    return [column for column in everything(report) if not column.is_extra]


def everything(report: records.Report, names: Sequence[str] = ()) -> list[Column]:
    """Return the columns that were named, else all that say something in this report."""
    if names:
        return chosen(report, names)
    shown = lines(report)
    return [
        column
        for column in COLUMNS
        if column.name != "configuration" and any(column.text(*line) for line in shown)
    ]


def texts(report: records.Report, columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return the cells for people, by title."""
    return [
        {title(column, report): column.text(*line) for column in columns} for line in lines(report)
    ]


def values(report: records.Report, columns: Sequence[Column]) -> list[dict[str, object]]:
    """Return the numbers for programs, by name."""
    return [
        {
            name: _rounded(value)
            for column in columns
            for name, value in column.values(*line).items()
        }
        for line in lines(report)
    ]


def _rounded(value: object) -> object:
    # The last digits come from exp(log(x)), and 0.9499999999999996 reads like a fault.
    return float(f"{value:.10g}") if isinstance(value, float) else value


def title(column: Column, report: records.Report) -> str:
    """Return what stands above a column."""
    return report.unit if column.name == "size" else column.name
