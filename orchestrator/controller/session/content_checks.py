"""Checks of stored rows for `db check`, beyond the types of the columns."""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from orchestrator import jobs

_Row: TypeAlias = Mapping[str, Any]
#: (column, what is wrong with it)
_Problems: TypeAlias = Iterator[tuple[str, str]]
#: allowed difference between clocks
_CLOCK_DIFFERENCE = datetime.timedelta(days=1)
_MAX_LEASE_SECONDS = 7 * 86400.0
_FUTURE = datetime.timedelta(days=366)
_JOB_ID = re.compile(r"(?:local-)?[0-9]+(?:[_+].*)?")
_TOKEN = re.compile(r"[a-z0-9]{5,}")
_INSTALLATION_ID = re.compile(r"[a-z0-9]{4}")
#: of the fields of metrics.LogCursor in the column `carry`
_READING_TYPES: Mapping[str, Sequence[type]] = {
    "attempt": (int, type(None)),
    "banner": (int,),
    "skipping": (bool,),
    "fingerprint": (str,),
}
#: columns with paths
_PATHS: Mapping[str, Sequence[str]] = {
    "submissions": ("run_dir",),
    "jobs": ("stdout_path", "stderr_path"),
    "log_cursors": ("path",),
    "sweeps": ("source", "folder"),
    "schedules": ("source", "folder"),
    "graphs": ("source", "folder"),
    "graph_nodes": ("source",),
}


def checks(now: datetime.datetime) -> dict[str, Callable[[_Row], _Problems]]:
    checks_of_table: dict[str, Callable[[_Row], _Problems]] = {
        "settings": _setting,
        "submissions": _submission,
        "jobs": _job,
        "attempts": _times,
        "baselines": _baseline,
        "environments": _environment_document,
        "leases": lambda row: _lease(row, now),
        "schedules": _schedule,
        "graphs": _environment,
        "graph_nodes": lambda row: iter(()),
        "log_cursors": _log_cursor,
        "sweeps": _sweep,
    }

    def check(table: str, row: _Row) -> _Problems:
        for column in _PATHS.get(table, ()):
            if "\0" in (row[column] or ""):
                yield column, "is not a path: it contains a NUL"
        yield from checks_of_table[table](row)

    return {table: functools.partial(check, table) for table in checks_of_table}


def _setting(row: _Row) -> _Problems:
    # Only `db check` needs these modules.
    from orchestrator.controller.diagnosis import alerts
    from orchestrator.controller.metrics import ended_jobs
    from orchestrator.controller.notices import delivery, events

    key, value = row["key"], row["value"]
    if key == "installation_id":
        if not _INSTALLATION_ID.fullmatch(value):
            yield "value", f"is {value!r}, not four letters or digits"
        return
    parsers: dict[str, Callable[[str], object]] = {
        delivery.KEY: events.Cursor.of_json,
        ended_jobs.KEY: ended_jobs.parse_progress,
        alerts.KEY: alerts.last_check,
    }
    try:
        if value and key in parsers:
            parsers[key](value)
        elif key.startswith(("cluster:", "sacct-failure:")):
            json.loads(value)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        yield "value", f"of {key!r} cannot be read: {error}"


def _submission(row: _Row) -> _Problems:
    if not _TOKEN.fullmatch(row["token"]):
        yield "token", f"is {row['token']!r}, not letters and digits"
    # A tracked job has no folder.
    folder = json.loads(row["provenance"]).get("folder")
    if folder is not None and (not isinstance(folder, str) or "\0" in folder):
        yield "provenance", "has a folder that is not a path"


def _job(row: _Row) -> _Problems:
    yield from _times(row)
    for column in ("job_id", "raw_job_id", "array_job_id"):
        if row[column] is not None and not _JOB_ID.fullmatch(row[column]):
            yield column, f"is {row[column]!r}, not a job ID"
    if row["settled"] and row["state"] == jobs.JobState.COMPLETED and row["ended_at"] is None:
        yield "ended_at", "is missing, and the job is COMPLETED"


def _times(row: _Row) -> _Problems:
    state, started_at, ended_at = row["state"], row["started_at"], row["ended_at"]
    if ended_at is None:
        return
    if started_at is not None and started_at - ended_at > _CLOCK_DIFFERENCE:
        yield "ended_at", f"is {ended_at}, before the start at {started_at}"
    if state in (jobs.JobState.PENDING, jobs.JobState.RUNNING):
        yield "ended_at", f"is {ended_at}, and the state is {state}"


def _baseline(row: _Row) -> _Problems:
    from orchestrator.controller.reports import baselines

    try:
        baseline = baselines.from_json(row["measurements"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        yield "measurements", f"cannot be read: {error}"
    else:
        if len(baseline.measurements) != row["runs"]:
            yield (
                "runs",
                f"is {row['runs']}, but there are {len(baseline.measurements)} measurements",
            )


def _environment_document(row: _Row) -> _Problems:
    from orchestrator import environments

    if environments.sha256(row["document"]) != row["sha256"]:
        yield "sha256", f"is {row['sha256']!r}, not that of the document"


def _lease(row: _Row, now: datetime.datetime) -> _Problems:
    if not (math.isfinite(row["seconds"]) and 0 <= row["seconds"] <= _MAX_LEASE_SECONDS):
        yield "seconds", f"is {row['seconds']}, not the duration of a lease"
    if row["renewed_at"] is not None and row["renewed_at"] - now > _FUTURE:
        yield "renewed_at", f"is {row['renewed_at']}, in the future"


def _schedule(row: _Row) -> _Problems:
    from orchestrator.schedules import calendars

    try:
        # Which time zones are known depends on the host.
        calendars.Calendar(row["cron"], "UTC")
    except calendars.ScheduleError as error:
        yield "cron", f"cannot be read: {error}"
    yield from _environment(row)


def _environment(row: _Row) -> _Problems:
    if any("\0" in text or "=" in name for name, text in row["environment"].items()):
        yield "environment", "has a variable that no process can have"


def _log_cursor(row: _Row) -> _Problems:
    for name in ("reading", "matching"):
        if not isinstance(row["carry"].get(name, {}), dict):
            yield "carry", f"has no object {name!r}"
            return
    for name, value in row["carry"].get("reading", {}).items():
        if type(value) not in _READING_TYPES.get(name, ()):
            yield "carry", f"has {value!r} as {name!r} of 'reading'"


def _sweep(row: _Row) -> _Problems:
    if not isinstance(row["spec"].get("sweep"), dict):
        yield "spec", "has no table [sweep]"
