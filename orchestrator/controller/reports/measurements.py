"""What jobs have measured: their metrics, specs and results, as a report takes them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files, jobs, metrics, reports, specs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts
from orchestrator.controller.usage import gpu_files
from orchestrator.reports import job_measurements
from orchestrator.text import escaping

#: result.json holds the history of all epochs; what is larger was not written by the trainer.
_RESULT_LIMIT_BYTES = 16 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What jobs showed."""

    #: one of reports' units
    unit: str
    measurements: tuple[reports.Measurement, ...]
    #: a sentence for each reason why jobs show nothing
    left_out: tuple[str, ...]


def measure(
    context: contexts.Context,
    found: Sequence[jobs.Job],
    *,
    renamed: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Measured:
    """Return what these jobs showed; those that are not COMPLETED are left out.

    What their files got since the last look is read first. `renamed`: attributes that have another
    name in these jobs' programs. `say` is told what is wrong with files; none: the context's.
    """
    done = [job for job in found if job.state is jobs.JobState.COMPLETED]
    told = _told(context, done, say)
    unit = job_measurements.unit_of(told)
    reasons: dict[str, list[jobs.Job]] = {}
    for job in found:
        if job.state is not jobs.JobState.COMPLETED:
            reasons.setdefault(str(job.state), []).append(job)
    measurements = []
    for one in told:
        made = job_measurements.measurement(one, unit)
        if isinstance(made, str):
            reasons.setdefault(made, []).append(one.job)
        else:
            measurements.append(_renamed(made, renamed or {}))
    return Measured(
        unit=unit,
        measurements=tuple(measurements),
        left_out=tuple(_left_out(reason, these) for reason, these in reasons.items()),
    )


def _told(
    context: contexts.Context, done: Sequence[jobs.Job], say: Callable[[str], None] | None
) -> list[job_measurements.Told]:
    if not done:
        return []
    try:
        ingest.ingest_for_numbers(context, done, say=say)
    except errors.DatabaseError as exc:
        context.reporter.warn(f"What the logs got since the last look is left out: {exc}")
    wanted = metrics.MetricQuery(
        job_rows=tuple(job.row for job in done), names=job_measurements.NAMES, prefer_jsonl=True
    )
    with context.store.reading() as work:
        stored = work.metrics.by_job(wanted)
        submissions = {
            token: submission
            for token in dict.fromkeys(job.token for job in done)
            if (submission := work.jobs.submission(token)) is not None
        }
    read = {token: specs.from_json(one.spec) for token, one in submissions.items()}
    papers = {token: _record(one.provenance) for token, one in submissions.items()}
    return [
        job_measurements.Told(
            job=job,
            spec=read[job.token],
            metrics=stored.get(job.row, []),
            result=_result(job, say or context.reporter.warn),
            gpus=gpu_files.figures(job, read[job.token], papers[job.token]),
            provenance=papers[job.token],
        )
        for job in done
    ]


def _renamed(made: reports.Measurement, names: Mapping[str, str]) -> reports.Measurement:
    attributes = {names.get(name, name): value for name, value in made.attributes.items()}
    return dataclasses.replace(made, attributes=attributes)


def _left_out(reason: str, these: Sequence[jobs.Job]) -> str:
    first = sorted(these, key=lambda job: job.row)[:5]
    names = ", ".join(job.job_id or f"@{job.row}" for job in first)
    more = f" and {len(these) - 5} more" if len(these) > 5 else ""
    return f"left out ({reason}): {names}{more}"


def _task_suffix(job: jobs.Job) -> str:
    return "" if job.array_task_id is None else f".{job.array_task_id}"


def _result(job: jobs.Job, say: Callable[[str], None]) -> Mapping[str, Any]:
    path = Path(job.run_dir) / f"result{_task_suffix(job)}.json"
    try:
        return _record(files.read_text(path, limit_bytes=_RESULT_LIMIT_BYTES, errors="replace"))
    except (files.NotRegularFileError, files.TooLargeError) as exc:
        say(f"{escaping.visible(str(path))} is left out: it is {exc.strerror}")
    except OSError:
        pass
    return {}


def _record(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
