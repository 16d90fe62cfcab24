"""Rows of the database <-> records. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import sqlalchemy as sa

from db import models
from db.stores import jobs as job_store
from orchestrator import jobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of each of a thousand jobs of a submission, while it is sent."""

    row: int
    #: none: the submission is no array
    array_task_id: int | None
    state: jobs.JobState
    job_id: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefreshState:
    """What was last heard of a cluster, and who is asking it now."""

    cluster: str
    #: moments before the commands that were answered well
    last_good_squeue_at: datetime.datetime | None = None
    last_good_sacct_at: datetime.datetime | None = None
    #: begin of the newest refresh, its end once it has ended
    last_tried_at: datetime.datetime | None = None
    #: none: the newest refresh went well
    failing_since: datetime.datetime | None = None
    last_error: str | None = None
    #: who is asking now, and until when that is believed
    holder: str | None = None
    claimed_until: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What an upgrade of the tables did."""

    #: revision before; none: there was no database
    before: str | None
    #: revision now
    after: str | None
    #: copy of the database as it was
    backup: pathlib.Path | None


#: Fields of jobs.Job that are columns of the same name and change over its life.
PLAIN_FIELDS = frozenset(
    field.name
    for field in dataclasses.fields(jobs.Job)
    if field.name
    not in {
        "row",
        "token",
        "cluster",
        "scheduler",
        "name",
        "run_dir",
        "created_at",
        "state",
        "labels",
        "alerts",
        "submitter",
        "stale_since",
        "version",
    }
)
_SUBMITTER_COLUMNS = (
    "submitter_host",
    "submitter_boot_id",
    "submitter_pid",
    "submitter_start_ticks",
)
_ATTEMPT_FIELDS = tuple(
    field.name for field in dataclasses.fields(jobs.Attempt) if field.name != "state"
)


job_records = job_store.job_records


def job_record(row: sa.Row[Any]) -> jobs.Job:
    return job_records([row])[0]


def new_jobs(
    tasks: Sequence[int | None], created_at: datetime.datetime, changes: Mapping[str, object]
) -> list[dict[str, object]]:
    """Return the columns of new jobs, or of an array's tasks; they still lack their submission."""
    columns = {
        "settled": False,
        "attempt": 0,
        "restart_count": 0,
        "misses": 0,
        "refusals": 0,
        "version": 0,
        "created_at": created_at,
        **job_columns(changes),
    }
    return [{**columns, "array_task": task or 0, "array_task_id": task} for task in tasks]


def new_record(
    row: int, columns: Mapping[str, object], submission: jobs.Submission | sa.Row[Any]
) -> jobs.Job:
    """Return a job that was just stored, as it would be read."""
    names = ("token", "cluster", "scheduler", "name", "run_dir")
    shared = {name: getattr(submission, name) for name in names}
    return job_store.job_record({"row": row, **columns, **shared})


def task_record(row: sa.Row[Any]) -> Task:
    return Task(
        row=row.row,
        array_task_id=row.array_task_id,
        state=jobs.JobState(row.state),
        job_id=row.job_id,
    )


def job_columns(changes: Mapping[str, object]) -> dict[str, object]:
    """Return columns for fields of jobs.Job; raises ValueError for one that never changes."""
    columns: dict[str, object] = {}
    for name, value in changes.items():
        match name, value:
            case "state", jobs.JobState():
                columns["state"] = value.value
            case "labels", tuple():
                columns["labels"] = json.dumps(value, ensure_ascii=False)
            case "alerts", tuple():
                columns["alerts"] = _alerts_text(value)
            case "submitter", None | jobs.Submitter():
                for column in _SUBMITTER_COLUMNS:
                    columns[column] = getattr(value, column.removeprefix("submitter_"), None)
            case _ if name in PLAIN_FIELDS:
                columns[name] = value
            case _:
                raise ValueError(f"{name} of a job cannot be set to {value!r}")
    return columns


def _alerts_text(alerts: Sequence[jobs.Alert]) -> str | None:
    found = [{**dataclasses.asdict(one), "since": one.since.isoformat()} for one in alerts]
    return json.dumps(found, ensure_ascii=False) if found else None


def submission_record(row: sa.Row[Any]) -> jobs.Submission:
    return jobs.Submission(
        token=row.token,
        cluster=row.cluster,
        scheduler=cast("Literal['slurm', 'local']", row.scheduler),
        name=row.name,
        script=row.script,
        spec=row.spec,
        run_dir=row.run_dir,
        provenance=row.provenance,
        created_at=row.created_at,
        request_sha256=row.request_sha256,
    )


def attempt_record(row: models.Attempt | sa.Row[Any]) -> jobs.Attempt:
    values: dict[str, Any] = {name: getattr(row, name) for name in _ATTEMPT_FIELDS}
    return jobs.Attempt(state=jobs.JobState(row.state), **values)


def attempt_columns(job_row: int, attempt: jobs.Attempt) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(attempt, name) for name in _ATTEMPT_FIELDS}
    return {"job_row": job_row, "state": attempt.state.value, **values}


def event_record(row: models.JobEvent) -> jobs.JobEvent:
    return jobs.JobEvent(
        at=row.at,
        kind=row.kind,
        attempt=row.attempt,
        state=None if row.state is None else jobs.JobState(row.state),
        raw_state=row.raw_state,
        source=row.source,
        detail=row.detail,
    )


def event_columns(job_row: int, event: jobs.JobEvent) -> dict[str, object]:
    return {
        "job_row": job_row,
        "at": event.at,
        "kind": event.kind,
        "attempt": event.attempt,
        "state": None if event.state is None else event.state.value,
        "raw_state": event.raw_state,
        "source": event.source,
        "detail": event.detail,
    }
