"""What `db check` asks of each stored row beyond the types of its columns: that it makes sense."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from orchestrator import jobs

_Row: TypeAlias = Mapping[str, Any]
_Wrong: TypeAlias = Iterator[tuple[str, str]]
#: Clocks differ and are set; a job that ends so long before it began is none.
_CLOCKS = datetime.timedelta(days=1)
#: No lease is asked for that holds longer.
_LONGEST_LEASE_SECONDS = 7 * 86400.0
_FUTURE = datetime.timedelta(days=366)
#: Of Slurm, with the task of an array or the part of a heterogeneous job; of this machine.
_JOB_ID = re.compile(r"(?:local-)?[0-9]+(?:[_+].*)?")
_TOKEN = re.compile(r"[a-z0-9]{5,}")
_INSTALLATION = re.compile(r"[a-z0-9]{4}")
#: The texts that name files and folders, by table.
_PATHS: Mapping[str, Sequence[str]] = {
    "submissions": ("run_dir",),
    "jobs": ("stdout_path", "stderr_path"),
    "log_cursors": ("path",),
    "sweeps": ("source", "folder"),
    "schedules": ("source", "folder"),
    "graphs": ("source", "folder"),
    "graph_nodes": ("source",),
}


def checks(now: datetime.datetime) -> dict[str, Callable[[_Row], _Wrong]]:
    """Return the checks by table; what lies far behind `now` was not written by a right clock."""
    own: dict[str, Callable[[_Row], _Wrong]] = {
        "settings": _setting,
        "submissions": _submission,
        "jobs": _job,
        "attempts": _times,
        "baselines": _baseline,
        "leases": lambda row: _lease(row, now),
        "schedules": _schedule,
        "graphs": lambda row: _command(row),
        "graph_nodes": _node,
        "log_cursors": _cursor,
        "sweeps": _sweep,
    }

    def both(table: str) -> Callable[[_Row], _Wrong]:
        def check(row: _Row) -> _Wrong:
            for name in _PATHS.get(table, ()):
                if "\0" in (row[name] or ""):
                    yield name, "is no path: it holds a NUL"
            if table in own:
                yield from own[table](row)

        return check

    return {table: both(table) for table in {*own, *_PATHS}}


def _setting(row: _Row) -> _Wrong:
    # Loaded here: `db check` alone needs them.
    from orchestrator.controller.diagnosis import alerts
    from orchestrator.controller.metrics import ended_jobs
    from orchestrator.controller.notices import events, send

    key, value = row["key"], row["value"]
    readers: dict[str, Callable[[str], object]] = {
        send.KEY: events.Cursor.of_json,
        ended_jobs.KEY: ended_jobs.parse_progress,
        alerts.KEY: alerts.last_check,
    }
    if key == "installation_id":
        if not _INSTALLATION.fullmatch(value):
            yield "value", f"is {value!r}, not four letters or digits"
        return
    try:
        if value and key in readers:
            readers[key](value)
        elif key.startswith(("cluster:", "sacct-failure:")):
            json.loads(value)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        yield "value", f"of {key!r} cannot be read: {error}"


def _submission(row: _Row) -> _Wrong:
    if not _TOKEN.fullmatch(row["token"]):
        yield "token", f"is {row['token']!r}, not letters and digits"
    # What a tracked job was called in has no folder.
    folder = json.loads(row["provenance"]).get("folder")
    if folder is not None and (not isinstance(folder, str) or "\0" in folder):
        yield "provenance", "has a folder that is no path"


def _job(row: _Row) -> _Wrong:
    yield from _times(row)
    for name in ("job_id", "raw_job_id", "array_job_id"):
        if row[name] is not None and not _JOB_ID.fullmatch(row[name]):
            yield name, f"is {row[name]!r}, no job ID"
    if row["settled"] and row["state"] == jobs.JobState.COMPLETED and row["ended_at"] is None:
        yield "ended_at", "is missing, and the job is COMPLETED"
    if not all(isinstance(label, str) for label in json.loads(row["labels"])):
        yield "labels", "is not a list of texts"
    try:
        for alert in json.loads(row["alerts"] or "[]"):
            values = {**alert, "since": datetime.datetime.fromisoformat(alert["since"])}
            jobs.Alert(**values)
    except (LookupError, TypeError, ValueError) as error:
        yield "alerts", f"cannot be read: {error}"


def _times(row: _Row) -> _Wrong:
    state = jobs.JobState(row["state"])
    began, ended = row["started_at"], row["ended_at"]
    if began is not None and ended is not None and began - ended > _CLOCKS:
        yield "ended_at", f"is {ended}, before the start at {began}"
    if ended is not None and state in (jobs.JobState.PENDING, jobs.JobState.RUNNING):
        yield "ended_at", f"is {ended}, and the state is {state}"


def _baseline(row: _Row) -> _Wrong:
    from orchestrator.controller.reports import baselines

    try:
        found = baselines.from_json(row["measurements"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        yield "measurements", f"cannot be read: {error}"
    else:
        if len(found.measurements) != row["runs"]:
            yield "runs", f"is {row['runs']}, and measurements has {len(found.measurements)}"


def _lease(row: _Row, now: datetime.datetime) -> _Wrong:
    if not (math.isfinite(row["seconds"]) and 0 <= row["seconds"] <= _LONGEST_LEASE_SECONDS):
        yield "seconds", f"is {row['seconds']}, no time that a lease holds"
    if row["renewed_at"] is not None and row["renewed_at"] - now > _FUTURE:
        yield "renewed_at", f"is {row['renewed_at']}, which is still to come"


def _schedule(row: _Row) -> _Wrong:
    from orchestrator import schedules

    try:
        # Whether its zone is known depends on the host.
        schedules.Calendar(row["cron"], "UTC")
    except schedules.ScheduleError as error:
        yield "cron", f"cannot be read: {error}"
    yield from _command(row)


def _command(row: _Row) -> _Wrong:
    if not all(isinstance(word, str) for word in json.loads(row["argv"])):
        yield "argv", "is not a list of texts"
    variables = json.loads(row["environment"])
    if not all(isinstance(value, str) for value in variables.values()):
        yield "environment", "has a value that is no text"
    elif any("\0" in text or "=" in name for name, text in variables.items()):
        yield "environment", "has a variable that no process can have"


def _node(row: _Row) -> _Wrong:
    pairs = json.loads(row["after"])
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        yield "after", "is not a list of pairs"


def _cursor(row: _Row) -> _Wrong:
    carry = json.loads(row["carry"] or "{}")
    for name in ("reading", "matching"):
        if not isinstance(carry.get(name, {}), dict):
            yield "carry", f"has no object {name!r}"


def _sweep(row: _Row) -> _Wrong:
    if not isinstance(json.loads(row["spec"]).get("sweep"), dict):
        yield "spec", "has no table [sweep]"
