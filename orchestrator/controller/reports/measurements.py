"""Measure jobs: read their logs, metrics, specs and results."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import files, jobs, metrics, reports, specs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.reproduction import comparing
from orchestrator.controller.session import contexts
from orchestrator.controller.usage import gpu_files
from orchestrator.reports import job_measurements
from orchestrator.text import escaping

#: result.json holds the history of all epochs; the trainer writes none that is larger.
_RESULT_LIMIT_BYTES = 16 * 1024 * 1024
#: So many of the jobs without a measurement are named.
_MAX_NAMED = 5


def measure(
    context: contexts.Context,
    jobs_: Sequence[jobs.Job],
    *,
    renamed: Mapping[str, str] | None = None,
) -> reports.MeasurementSet:
    """Return the measurements of the COMPLETED jobs, after reading what is new in their files.

    `renamed`: attributes that their programs call differently.
    """
    reasons = collections.defaultdict(list)
    completed = []
    for job in jobs_:
        if job.state is jobs.JobState.COMPLETED:
            completed.append(job)
        else:
            reasons[str(job.state)].append(job)
    records = _records(context, completed) if completed else []
    unit = "gpus" if all(record.job.gpus for record in records) else "ranks"
    measurements = []
    identities = comparing.identities(context, [record.job for record in records])
    for record, identity in zip(records, identities, strict=True):
        measured = job_measurements.measurement(record, unit)
        if isinstance(measured, str):
            reasons[measured].append(record.job)
            continue
        attributes = {
            (renamed or {}).get(name, name): value for name, value in measured.attributes.items()
        }
        own = dataclasses.asdict(identity)
        measurements.append(dataclasses.replace(measured, attributes=attributes, **own))
    left_out = []
    for reason, group in reasons.items():
        named = sorted(group, key=lambda job: job.row)[:_MAX_NAMED]
        names = ", ".join(job.job_id or f"@{job.row}" for job in named)
        more = f" and {len(group) - len(named)} more" if len(group) > len(named) else ""
        left_out.append(f"left out ({reason}): {names}{more}")
    return reports.MeasurementSet(
        unit=unit, measurements=tuple(measurements), left_out=tuple(left_out)
    )


def _records(
    context: contexts.Context, completed: Sequence[jobs.Job]
) -> list[job_measurements.JobRecord]:
    ingest.ingest_for_command(context, completed)
    query = metrics.MetricQuery(
        job_rows=tuple(job.row for job in completed),
        names=job_measurements.NAMES,
        prefer_jsonl=True,
    )
    with context.store.reading() as work:
        stored = work.metrics.by_job(query)
        submissions = {
            token: submission
            for token in dict.fromkeys(job.token for job in completed)
            if (submission := work.jobs.submission(token)) is not None
        }
    job_specs = {token: specs.from_json(row.spec) for token, row in submissions.items()}
    provenances = {token: _json_object(row.provenance) for token, row in submissions.items()}
    return [
        job_measurements.JobRecord(
            job=job,
            spec=job_specs[job.token],
            metrics=stored.get(job.row, []),
            result=_result(job, context.reporter.warn),
            gpus=gpu_files.read(job, job_specs[job.token], provenances[job.token]),
            provenance=provenances[job.token],
        )
        for job in completed
    ]


def _result(job: jobs.Job, warn: Callable[[str], None]) -> Mapping[str, Any]:
    suffix = "" if job.array_task_id is None else f".{job.array_task_id}"
    path = Path(job.run_dir) / f"result{suffix}.json"
    try:
        text = files.read_text(path, limit_bytes=_RESULT_LIMIT_BYTES, errors="replace")
        return _json_object(text)
    except (files.NotRegularFileError, files.TooLargeError) as exc:
        warn(f"{escaping.visible(str(path))} is left out: it is {exc.strerror}")
    except OSError:
        pass
    return {}


def _json_object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
