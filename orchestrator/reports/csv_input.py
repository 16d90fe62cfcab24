"""Read measurements from a CSV file: a row per repeat; unknown columns are attributes."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orchestrator import errors
from orchestrator.reports import records
from orchestrator.text import escaping


class MeasurementFileError(errors.ProblemsError):
    """A file of measurements is invalid."""

    exit_code = 3
    consequence = "nothing was reported"


def _count(text: str) -> int:
    # pandas writes decimals in a column with a missing number.
    if not re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) or float(text) < 1:
        raise ValueError(f"{text!r} is not a whole number from 1 to 999999999")
    return int(float(text))


def _number(text: str, *, zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError as exc:
        has_marks = re.fullmatch(r"\d+([,' .]\d+)+", text)
        fix = "; write it without separators, and decimals with a point" if has_marks else ""
        raise ValueError(f"{text!r} is not a number above 0{fix}") from exc
    if not math.isfinite(value) or value < 0.0 or (value == 0.0 and not zero):
        raise ValueError(f"{text!r} is not a number above 0")
    if not records.is_plausible(value):
        raise ValueError(f"{text!r} is outside {records.SMALLEST:g} to {records.LARGEST:g}")
    return value


def _number_or_zero(text: str) -> float:
    return _number(text, zero=True)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(_number(part) for part in re.split(r"[;\s]+", text) if part)


def _share(text: str) -> float:
    digits = text.removesuffix("%").strip()
    value = _number_or_zero(digits) / (1.0 if digits == text else 100.0)
    if value > 1.0:
        raise ValueError(f"{text!r} is not a share: write 0.87 or 87%")
    return value


#: Column -> how its cells are parsed, and other names of it.
_COLUMNS: Mapping[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "gpus": (_count, ("gpu", "num_gpus")),
    "ranks": (_count, ("world_size",)),
    "nodes": (_count, ("num_nodes",)),
    "throughput": (
        _number,
        ("samples_per_second", "images_per_second", "samples/s", "images/s", "img/s"),
    ),
    "windows": (_numbers, ("window_throughput",)),
    "epoch_seconds": (_number, ("epoch_time",)),
    "total_seconds": (_number, ("total_time", "time")),
    "data_wait_share": (_share, ("data_wait",)),
    "memory_gib": (_numbers, ("memory",)),
    "memory_bytes": (_numbers, ()),
    "utilisation": (_share, ("utilization", "gpu_utilisation", "gpu_utilization")),
    "accuracy": (_share, ("val_accuracy",)),
    "name": (str, ("job", "configuration")),
    "source": (str, ()),
    "warm_up": (str, ("warmup",)),
    "node_list": (str, ()),
}
_ALIASES = {alias: name for name, (_, aliases) in _COLUMNS.items() for alias in aliases}
_STEP_PART = re.compile(r"step_(\w+)_seconds")


def read_csv(text: str, source: str) -> records.MeasurementSet:
    """Return the measurements of a CSV text; MeasurementFileError with all problems.

    Required columns are `gpus` (or `nodes`) and `throughput`. Values in a cell (windows, memory of
    each rank) are separated by `;` or blanks. Shares may end in `%`. Columns are separated by
    commas, or by `;` or tabs if the header has no comma.
    """
    # Spreadsheets write a byte order mark.
    rows = [
        (line, row)
        for line, row in _rows(text.removeprefix("\ufeff"), source)
        if any(map(str.strip, row)) and not row[0].lstrip().startswith("#")
    ]
    if not rows:
        message = "is empty: the header must name columns, at least gpus,throughput"
        raise _error(source, None, [("", message)])
    (header_line, header), *body = rows
    titles = [title.strip().lower().replace(" ", "_").replace("-", "_") for title in header]
    names = [_ALIASES.get(title, title) for title in titles]
    if problems := [("", message) for message in _header_problems(names, has_rows=bool(body))]:
        raise _error(source, header_line, problems)
    unit = next(name for name in records.UNITS if name in names)
    measurements = []
    file_problems: list[errors.Problem] = []
    for line, row in body:
        cells = dict(zip(names, map(str.strip, row), strict=False))
        values, problems = _parsed(cells, unit)
        if len(row) > len(names):
            problems.insert(0, ("", f"has {len(row)} cells, and the header {len(names)}"))
        if problems:
            file_problems += _error(source, line, problems).problems
        else:
            measurements.append(_measurement(values, cells, unit, line))
    if file_problems:
        raise MeasurementFileError(file_problems)
    return records.MeasurementSet(unit=unit, measurements=tuple(measurements))


def _error(source: str, line: int | None, problems: list[tuple[str, str]]) -> MeasurementFileError:
    """Return the error for problems of a line, each with its column."""
    return MeasurementFileError(
        [
            errors.Problem(source=source, line=line, key=key, message=message)
            for key, message in problems
        ]
    )


def _rows(text: str, source: str) -> list[tuple[int, list[str]]]:
    """Return the rows, each with the number of its last line."""
    lines = map(str.strip, text.splitlines())
    header = next((line for line in lines if line and not line.startswith("#")), "")
    # Spreadsheets write `;` where decimals have a comma, and our tables have tabs in a pipe.
    delimiter = next((mark for mark in ",;\t" if mark in header), ",")
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    try:
        return [
            (reader.line_num, [escaping.visible(cell.strip()) for cell in row]) for row in reader
        ]
    except csv.Error as exc:
        raise _error(source, reader.line_num, [("", f"cannot be read as CSV: {exc}")]) from exc


def _header_problems(names: list[str], *, has_rows: bool) -> Iterator[str]:
    if not set(names) & set(records.UNITS):
        yield "lacks the column gpus (or nodes): the size of each run"
    if "throughput" not in names:
        yield "lacks the column throughput: samples/s over all ranks"
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"has the column {name} {names.count(name)} times"
    if not has_rows:
        yield "has no rows below the header"


def _parsed(cells: Mapping[str, str], unit: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the values of the known columns, and the problems by column."""
    values: dict[str, Any] = {}
    problems = []
    for name, text in cells.items():
        parse, _ = _COLUMNS.get(name, (_number_or_zero, ()))
        if text and (name in _COLUMNS or _STEP_PART.fullmatch(name)):
            try:
                values[name] = parse(text)
            except ValueError as exc:
                problems.append((name, str(exc)))
    problems += [(name, "is empty") for name in (unit, "throughput") if not cells.get(name)]
    throughput, windows = values.get("throughput"), values.get("windows")
    if throughput and windows and not min(windows) <= throughput <= max(windows):
        message = (
            f"{throughput:g} is outside its windows, {min(windows):g} to {max(windows):g}: "
            "write their median"
        )
        problems.append(("throughput", message))
    return values, problems


def _measurement(
    values: dict[str, Any], cells: Mapping[str, str], unit: str, line: int
) -> records.Measurement:
    memory_gib = values.pop("memory_gib", ())
    memory_bytes = values.pop("memory_bytes", ()) or tuple(gib * 2**30 for gib in memory_gib)
    attributes = {name: text for name, text in cells.items() if name and name not in _COLUMNS}
    steps = {name: match[1] for name in attributes if (match := _STEP_PART.fullmatch(name))}
    fields = {"name": f"line {line}", "nodes": None, **values}
    return records.Measurement(
        **{name: value for name, value in fields.items() if name not in ("gpus", "ranks", *steps)},
        size=values[unit],
        memory_bytes=memory_bytes,
        step_seconds={part: values[name] for name, part in steps.items() if name in values},
        attributes={name: text for name, text in attributes.items() if name not in steps},
    )
