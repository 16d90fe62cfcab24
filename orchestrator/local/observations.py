"""Entries of the spool -> what squeue and sacct would report about them. Pure functions."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator

from orchestrator import tracking
from orchestrator.local import queue
from orchestrator.local.records import Entry
from orchestrator.usage import efficiency


def live(entry: Entry, reason: str | None) -> tracking.Observation:
    return tracking.Observation(
        source="machine",
        name=entry.name,
        job_id=entry.job_id,
        raw_job_id=str(entry.raw_number),
        array_job_id=None if entry.task is None else f"local-{entry.number}",
        array_task_id=entry.task,
        state=entry.state,
        raw_state=str(entry.state),
        reason=reason,
        nodes=1,
        gpus=queue.gpus(entry),
        cpus=entry.cpus,
        node_list=None if entry.started_at is None else entry.host,
        time_limit_seconds=entry.time_limit_seconds,
        submitted_at=_time(entry.submitted_at),
        started_at=_time(entry.started_at),
        restart_count=entry.restart_count,
        stdout_path=entry.stdout_path,
    )


def attempts(entry: Entry) -> Iterator[tracking.Observation]:
    """Yield the attempts that have ended as sacct would show them, oldest first."""
    for number, ended in enumerate(entry.ended):
        row = dataclasses.replace(
            entry, state=ended.state, started_at=ended.started_at, restart_count=number
        )
        yield dataclasses.replace(
            live(row, ended.reason),
            exit_code=ended.exit_code,
            exit_signal=ended.exit_signal,
            ended_at=_time(ended.ended_at),
            row_number=number,
        )


def used(entry: Entry) -> efficiency.Used | None:
    """Return what the newest attempt used; None if no attempt has ended."""
    if not entry.ended:
        return None
    last = entry.ended[-1]
    started_at = last.started_at
    return efficiency.Used(
        elapsed_seconds=None if started_at is None else max(0, int(last.ended_at - started_at)),
        cpus=entry.cpus,
        cpu_seconds=last.cpu_seconds,
        memory_peak_bytes=last.largest_process_bytes,
        memory_is_of="the largest process",
    )


def _time(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)
