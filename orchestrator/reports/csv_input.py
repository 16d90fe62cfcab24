"""A CSV file of figures -> measurements.

A row is a repeat; columns that are no figures are attributes.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping

from orchestrator import errors
from orchestrator.reports import records
from orchestrator.text import escaping


class MeasurementFileError(errors.ProblemsError):
    """The file of figures is wrong."""

    exit_code = 3
    consequence = "nothing was reported"


#: Column -> what it holds; other names of it.
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
_ALIASES = {alias: name for name, others in _COLUMNS.items() for alias in (name, *others)}
_STEP_PART = re.compile(r"step_(\w+)_seconds")
_GIB = 2**30


def read_csv(text: str, source: str) -> records.MeasurementSet:
    """Return the measurements of a CSV text; MeasurementFileError with every problem there is.

    `gpus`, or `nodes` where there are no GPUs, and `throughput` must be there. Several values in a
    cell (windows, memory of each rank) stand apart by `;` or blanks. Shares may end in `%`. Columns
    stand apart by commas, or by `;` or tabs where the first line has no comma.
    """
    # Spreadsheets begin their CSV with a byte order mark.
    rows = _rows(text.removeprefix("\ufeff"), source)
    lines = [(number, row) for number, row in rows if any(map(str.strip, row))]
    lines = [(number, row) for number, row in lines if not row[0].lstrip().startswith("#")]
    if not lines:
        _fail(source, None, "is empty: its first line names columns, gpus,throughput at the least")
    (head_line, head), *body = lines
    names = [_ALIASES.get(_plain(title), _plain(title)) for title in head]
    problems = [*_wrong_head(names, source, head_line)]
    unit = next((one for one in records.UNITS if one in names), "")
    if not body and not problems:
        _fail(source, head_line, "has no rows below its first line")
    found = []
    for number, row in body if not problems else ():
        reader = _Row(source, number, unit, dict(zip(names, map(str.strip, row), strict=False)))
        if len(row) > len(names):
            reader.tell("", f"has {len(row)} cells, and the first line {len(names)}")
        found.append(reader.measurement())
        problems += reader.problems
    if problems:
        raise MeasurementFileError(problems)
    return records.MeasurementSet(
        unit=unit, measurements=tuple(one for one in found if one is not None)
    )


def _rows(text: str, source: str) -> list[tuple[int, list[str]]]:
    """Return the rows, each with the number of its (last) line."""
    lines = map(str.strip, text.splitlines())
    head = next((line for line in lines if line and not line.startswith("#")), "")
    # Spreadsheets write `;` where a comma begins the decimals, and the reports here tabs in a pipe.
    other = next((mark for mark in ";\t" if mark in head), ",")
    reader = csv.reader(io.StringIO(text), delimiter="," if "," in head else other)
    found = []
    try:
        for row in reader:
            # What a terminal would act on is no text.
            found.append((reader.line_num, [escaping.visible(cell.strip()) for cell in row]))
    except csv.Error as exc:
        _fail(source, reader.line_num, f"cannot be read as CSV: {exc}")
    return found


def _plain(title: str) -> str:
    return title.strip().lower().replace(" ", "_").replace("-", "_")


def _fail(source: str, line: int | None, message: str) -> None:
    raise MeasurementFileError([errors.Problem(source=source, line=line, message=message)])


def _wrong_head(names: list[str], source: str, line: int) -> Iterator[errors.Problem]:
    def problem(message: str) -> errors.Problem:
        return errors.Problem(source=source, line=line, message=message)

    if not set(names) & set(records.UNITS):
        yield problem("lacks the column gpus (or nodes): how large each run was")
    if "throughput" not in names:
        yield problem("lacks the column throughput: samples a second over all ranks")
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield problem(f"has the column {name} {names.count(name)} times")


class _Row:
    """One line; keeps what is wrong with it."""

    def __init__(self, source: str, line: int, unit: str, cells: Mapping[str, str]) -> None:
        self.problems: list[errors.Problem] = []
        self._source, self._line, self._unit = source, line, unit
        self._cells = cells

    def tell(self, key: str, message: str) -> None:
        self.problems.append(
            errors.Problem(source=self._source, line=self._line, key=key, message=message)
        )

    def measurement(self) -> records.Measurement | None:
        """Return the measurement; none where something is wrong."""
        size, nodes = self._count(self._unit), self._count("nodes")
        throughput = self._number("throughput")
        if size is None and not self.problems:
            self.tell(self._unit, "is empty")
        if throughput is None and not self.problems:
            self.tell("throughput", "is empty")
        windows = self._numbers("windows")
        if throughput is not None and windows and not min(windows) <= throughput <= max(windows):
            told = f"{throughput:g} is not within its windows, {min(windows):g} to {max(windows):g}"
            self.tell("throughput", f"{told}: write their median")
        memory = self._numbers("memory_bytes") or tuple(
            value * _GIB for value in self._numbers("memory_gib")
        )
        found = records.Measurement(
            name=self._cells.get("name") or f"line {self._line}",
            size=size or 1,
            throughput=throughput or 1.0,
            windows=windows,
            nodes=nodes,
            epoch_seconds=self._number("epoch_seconds"),
            total_seconds=self._number("total_seconds"),
            data_wait_share=self._share("data_wait_share"),
            memory_bytes=memory,
            utilisation=self._share("utilisation"),
            accuracy=self._share("accuracy"),
            step_seconds=self._parts(),
            source=self._cells.get("source") or "file",
            warm_up=self._cells.get("warm_up", ""),
            node_list=self._cells.get("node_list", ""),
            attributes={
                name: value
                for name, value in self._cells.items()
                if name and name not in _COLUMNS and not _STEP_PART.fullmatch(name)
            },
        )
        return None if self.problems else found

    def _parts(self) -> dict[str, float]:
        parts = {}
        for name in self._cells:
            if part := _STEP_PART.fullmatch(name):
                seconds = self._number(name, least=0.0)
                if seconds is not None:
                    parts[part[1]] = seconds
        return parts

    def _count(self, name: str) -> int | None:
        text = self._cells.get(name, "")
        if not text:
            return None
        # A column that lacks a number somewhere comes out of pandas with decimals.
        if not re.fullmatch(r"[0-9]{1,9}(\.0+)?", text) or float(text) < 1:
            self.tell(name, f"{text!r} is not a whole number from 1 to 999999999")
            return None
        return int(float(text))

    def _number(self, name: str, least: float | None = None) -> float | None:
        text = self._cells.get(name, "")
        return self._read(name, text, least) if text else None

    def _numbers(self, name: str) -> tuple[float, ...]:
        texts = re.split(r"[;\s]+", self._cells.get(name, "").strip())
        found = [self._read(name, text, None) for text in texts if text]
        return tuple(value for value in found if value is not None)

    def _read(self, name: str, text: str, least: float | None) -> float | None:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and (value > 0.0 or (least is not None and value >= least)):
            if records.is_plausible(value):
                return value
            told = f"{records.SMALLEST:g} to {records.LARGEST:g}"
            self.tell(name, f"{text!r} is outside {told}: nothing measures that")
            return None
        has_marks = re.fullmatch(r"\d+([,' .]\d+)+", text) is not None and math.isnan(value)
        cure = "; write it without separators, and decimals with a point" if has_marks else ""
        self.tell(name, f"{text!r} is not a number above 0{cure}")
        return None

    def _share(self, name: str) -> float | None:
        text = self._cells.get(name, "")
        if not text:
            return None
        digits = text.removesuffix("%").strip()
        value = self._read(name, digits, 0.0)
        if value is None:
            return None
        if digits != text:
            value /= 100.0
        if value > 1.0:
            self.tell(name, f"{text!r} is not a share: write 0.87 or 87%")
            return None
        return value
