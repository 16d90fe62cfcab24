"""Jobs: their rows as records."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from orchestrator import jobs

_SUBMITTER_COLUMNS = (
    "submitter_host",
    "submitter_boot_id",
    "submitter_pid",
    "submitter_start_ticks",
)


def job_records(rows: Sequence[sa.Row[Any]]) -> list[jobs.Job]:
    """Return the jobs of rows with the columns of `queries.select_jobs`."""
    if not rows:
        return []
    names = rows[0]._fields
    return [job_record(dict(zip(names, row, strict=True))) for row in rows]


def job_record(columns: dict[str, Any]) -> jobs.Job:
    for name in ("submission_id", "array_task"):
        columns.pop(name, None)
    host, boot_id, pid, start_ticks = (columns.pop(name, None) for name in _SUBMITTER_COLUMNS)
    columns["submitter"] = host and jobs.Submitter(
        host=host, boot_id=boot_id, pid=pid, start_ticks=start_ticks
    )
    columns["state"] = jobs.JobState(columns["state"])
    # Few jobs have labels.
    columns["labels"] = () if columns["labels"] == "[]" else tuple(json.loads(columns["labels"]))
    # Fewer have alerts.
    if (alerts := columns.pop("alerts", None)) is not None:
        columns["alerts"] = _alerts(alerts)
    # A frozen dataclass sets each field by a call: 20 us a job, and as much as all the rest of it.
    # A field that is left out has its default, which is an attribute of the class.
    job = object.__new__(jobs.Job)
    vars(job).update(columns)
    return job


def _alerts(text: str) -> tuple[jobs.Alert, ...]:
    return tuple(
        jobs.Alert(**{**found, "since": datetime.datetime.fromisoformat(found["since"])})
        for found in json.loads(text)
    )
