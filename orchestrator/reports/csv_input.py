"""Read measurements from a CSV file: a row per repeat; unknown columns are attributes."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator import errors
from orchestrator.reports import records
from orchestrator.text import escaping


class MeasurementFileError(errors.ProblemsError):
    """A file of measurements is invalid."""

    exit_code = 3
    consequence = "nothing was reported"


#: Column -> other names of it.
_COLUMNS = {
    "gpus": ("gpu", "num_gpus"),
    "ranks": ("world_size",),
    "nodes": ("num_nodes",),
    "throughput": ("samples_per_second", "images_per_second", "samples/s", "images/s", "img/s"),
    "windows": ("window_throughput",),
    "epoch_seconds": ("epoch_time",),
    "total_seconds": ("total_time", "time"),
    "data_wait_share": ("data_wait",),
    "memory_gib": ("memory",),
    "memory_bytes": (),
    "utilisation": ("utilization", "gpu_utilisation", "gpu_utilization"),
    "accuracy": ("val_accuracy",),
    "name": ("job", "configuration"),
    "source": (),
    "warm_up": ("warmup",),
    "node_list": (),
}
_ALIASES = {alias: name for name, aliases in _COLUMNS.items() for alias in aliases}
_SHARES = ("data_wait_share", "utilisation", "accuracy")
_TEXTS = ("name", "source", "warm_up", "node_list")
_STEP_PART = re.compile(r"step_(\w+)_seconds")
_GIB = 2**30


def read_csv(text: str, source: str) -> records.MeasurementSet:
    """Return the measurements of a CSV text; MeasurementFileError with all problems.

    Required columns are `gpus` (or `nodes`) and `throughput`. Values in a cell (windows, memory of
    each rank) are separated by `;` or blanks. Shares may end in `%`. Columns are separated by
    commas, or by `;` or tabs if the header has no comma.
    """
    # Spreadsheets write a byte order mark.
    rows = [
        (number, row)
        for number, row in _rows(text.removeprefix("\ufeff"), source)
        if any(map(str.strip, row)) and not row[0].lstrip().startswith("#")
    ]
    if not rows:
        message = "is empty: the header must name columns, at least gpus,throughput"
        raise _error(source, None, message)
    (header_line, header), *body = rows
    names = [_ALIASES.get(name, name) for name in map(_plain, header)]
    problems = [
        errors.Problem(source=source, line=header_line, message=message)
        for message in _header_problems(names)
    ]
    if not body and not problems:
        raise _error(source, header_line, "has no rows below the header")
    unit = next((name for name in records.UNITS if name in names), "")
    measurements = []
    for number, row in body if not problems else ():
        reader = _Row(source, number, dict(zip(names, map(str.strip, row), strict=False)))
        if len(row) > len(names):
            reader.add("", f"has {len(row)} cells, and the header {len(names)}")
        measurements.append(reader.measurement(unit))
        problems += reader.problems
    if problems:
        raise MeasurementFileError(problems)
    return records.MeasurementSet(unit=unit, measurements=tuple(measurements))


def _error(source: str, line: int | None, message: str) -> MeasurementFileError:
    return MeasurementFileError([errors.Problem(source=source, line=line, message=message)])


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
        raise _error(source, reader.line_num, f"cannot be read as CSV: {exc}") from exc


def _plain(title: str) -> str:
    return title.strip().lower().replace(" ", "_").replace("-", "_")


def _header_problems(names: list[str]) -> Iterator[str]:
    if not set(names) & set(records.UNITS):
        yield "lacks the column gpus (or nodes): the size of each run"
    if "throughput" not in names:
        yield "lacks the column throughput: samples/s over all ranks"
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"has the column {name} {names.count(name)} times"


class _Row:
    """One row, with its problems."""

    def __init__(self, source: str, line: int, cells: Mapping[str, str]) -> None:
        self.problems: list[errors.Problem] = []
        self._source, self._line, self._cells = source, line, cells

    def add(self, key: str, message: str) -> None:
        problem = errors.Problem(source=self._source, line=self._line, key=key, message=message)
        if problem not in self.problems:
            self.problems.append(problem)

    def measurement(self, unit: str) -> records.Measurement:
        """Return the measurement; only valid without problems."""
        size, throughput = self._count(unit), self._number("throughput")
        for name, value in ((unit, size), ("throughput", throughput)):
            if value is None and not self.problems:
                self.add(name, "is empty")
        windows = self._numbers("windows")
        if throughput is not None and windows and not min(windows) <= throughput <= max(windows):
            self.add(
                "throughput",
                f"{throughput:g} is outside its windows, {min(windows):g} to {max(windows):g}: "
                "write their median",
            )
        parts = {
            part[1]: self._number(name, zero=True)
            for name in self._cells
            if (part := _STEP_PART.fullmatch(name))
        }
        values: dict[str, Any] = {"name": f"line {self._line}"}
        values |= {name: self._cells[name] for name in _TEXTS if self._cells.get(name)}
        values |= {name: self._number(name) for name in ("epoch_seconds", "total_seconds")}
        values |= {name: self._share(name) for name in _SHARES}
        return records.Measurement(
            **values,
            size=size or 1,
            throughput=throughput or 1.0,
            windows=windows,
            nodes=self._count("nodes"),
            memory_bytes=self._numbers("memory_bytes")
            or tuple(value * _GIB for value in self._numbers("memory_gib")),
            step_seconds={part: value for part, value in parts.items() if value is not None},
            attributes={
                name: value
                for name, value in self._cells.items()
                if name and name not in _COLUMNS and not _STEP_PART.fullmatch(name)
            },
        )

    def _count(self, name: str) -> int | None:
        text = self._cells.get(name, "")
        if not text:
            return None
        # pandas writes decimals in a column with a missing number.
        if not re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) or float(text) < 1:
            self.add(name, f"{text!r} is not a whole number from 1 to 999999999")
            return None
        return int(float(text))

    def _number(self, name: str, *, zero: bool = False) -> float | None:
        text = self._cells.get(name, "")
        return self._parsed(name, text, zero=zero) if text else None

    def _numbers(self, name: str) -> tuple[float, ...]:
        texts = re.split(r"[;\s]+", self._cells.get(name, "").strip())
        values = [self._parsed(name, text) for text in texts if text]
        return tuple(value for value in values if value is not None)

    def _share(self, name: str) -> float | None:
        text = self._cells.get(name, "")
        digits = text.removesuffix("%").strip()
        value = self._parsed(name, digits, zero=True) if text else None
        if value is None:
            return None
        if digits != text:
            value /= 100.0
        if value > 1.0:
            self.add(name, f"{text!r} is not a share: write 0.87 or 87%")
        return value

    def _parsed(self, name: str, text: str, *, zero: bool = False) -> float | None:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0.0 or (value == 0.0 and not zero):
            has_marks = re.fullmatch(r"\d+([,' .]\d+)+", text) is not None and math.isnan(value)
            fix = "; write it without separators, and decimals with a point" if has_marks else ""
            self.add(name, f"{text!r} is not a number above 0{fix}")
        elif not records.is_plausible(value):
            self.add(name, f"{text!r} is outside {records.SMALLEST:g} to {records.LARGEST:g}")
        else:
            return value
        return None
