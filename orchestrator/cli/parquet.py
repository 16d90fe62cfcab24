"""Numbers as Parquet, with the pyarrow of this environment."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs, metrics
from orchestrator.cli import files, views


class NoPyarrowError(errors.OrchestratorError):
    """Parquet needs pyarrow: `pip install pyarrow` beside orchestrator, or --format csv."""


def write(
    path: Path,
    pages: Iterable[list[metrics.MetricRow]],
    by_row: Mapping[int, jobs.Job],
) -> bool:
    """Write the rows, a row group a page; false where there were none. NoPyarrowError."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as exc:
        raise NoPyarrowError from exc
    schema = _schema(arrow)
    some = False
    with files.replacing(path) as new, parquet.ParquetWriter(new, schema) as writer:
        for page in pages:
            rows = [_row(row, by_row[row.job_row]) for row in page]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            some = some or bool(rows)
    return some


def _row(row: metrics.MetricRow, job: jobs.Job) -> dict[str, object]:
    return {**views.metric_row(row, job), "job_row": job.row, "job_name": job.name}


def _schema(arrow: Any) -> Any:
    """Return the columns: those of `--format json`, and which job it is."""
    text, count = arrow.string(), arrow.int64()
    return arrow.schema(
        {
            "row": count,
            "job_row": count,
            "job_id": text,
            "array_task_id": count,
            "job_name": text,
            "attempt": count,
            "name": text,
            "value": arrow.float64(),
            "unit": text,
            "step": count,
            "epoch": count,
            "rank": count,
            "world_size": count,
            "time": arrow.timestamp("us", tz="UTC"),
            "source": text,
            "line": count,
        }.items()
    )
