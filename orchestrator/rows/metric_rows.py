"""Metrics as rows. The JSON fields are a contract."""

from __future__ import annotations

import datetime
import math
from typing import Any

from orchestrator import jobs, metrics
from orchestrator.rows import row_values


def metric_row(row: metrics.MetricRow, job: jobs.Job) -> dict[str, Any]:
    return {
        "row": row.id,
        **row_values.fields_of(job, ("job_id", "array_task_id")),
        **row_values.fields_of(row, ("attempt", "name")),
        "value": math.nan if row.value is None else row.value,
        **row_values.fields_of(row, ("unit", "step", "epoch", "rank", "world_size")),
        "time": None if row.time is None else row.time.replace(tzinfo=datetime.UTC),
        **row_values.fields_of(row, ("source", "line")),
    }
