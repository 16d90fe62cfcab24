"""Write rows to a Parquet file."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from orchestrator import errors
from orchestrator.cli import output
from orchestrator.cli.output import terminal

Kind = Literal["string", "int64", "float64", "bool", "time"]


def write(path: Path, columns: Mapping[str, Kind], pages: Iterable[Sequence[output.Row]]) -> int:
    """Replace a file, with one row group for each page; return the number of rows.

    OrchestratorError if pyarrow is not installed.
    """
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as exc:
        raise errors.OrchestratorError(
            "Parquet needs pyarrow: `pip install pyarrow`, or use --format csv."
        ) from exc
    types = {
        "string": arrow.string(),
        "int64": arrow.int64(),
        "float64": arrow.float64(),
        "bool": arrow.bool_(),
        "time": arrow.timestamp("us", tz="UTC"),
    }
    schema = arrow.schema((name, types[kind]) for name, kind in columns.items())
    total = 0
    with terminal.replacing(path) as new, parquet.ParquetWriter(new, schema) as writer:
        for rows in pages:
            total += len(rows)
            writer.write_table(arrow.Table.from_pylist(list(rows), schema=schema))
    return total


def kind_of(values: Iterable[object]) -> Kind:
    """Return the type of a column with these values; None fits all."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return "bool"
    if types == {int}:
        return "int64"
    return "float64" if types and types <= {int, float} else "string"
