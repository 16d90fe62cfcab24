"""The efficiency of one job. Accounting data of an ended attempt is queried once and stored."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
from collections.abc import Sequence
from typing import Any

from orchestrator import errors, jobs, specs
from orchestrator.controller.refresh import slurm_queries
from orchestrator.controller.session import clusters, contexts, queries
from orchestrator.slurm import failures
from orchestrator.usage import efficiency, gpus

#: After this time Slurm's data of an ended job is complete.
_COMPLETE_AFTER = datetime.timedelta(days=1)


def of(
    context: contexts.Context, details: queries.Details, *, may_ask: bool
) -> tuple[efficiency.Efficiency | None, list[gpus.GpuUsage]]:
    """Return the efficiency of a job's newest attempt (None: not started), and its GPUs.

    may_ask: query sacct if nothing is stored.
    """
    from orchestrator.controller.usage import gpu_files

    job = details.job
    if job.started_at is None:
        return None, []
    with context.store.reading() as work:
        text = work.attempts.used_figures(job.row, job.attempt)
    used: efficiency.Used | None
    why_unknown = ""
    stored = None if text is None else _from_json(text)
    if stored is not None:
        used, gpu_usage = stored
    else:
        spec = specs.from_json(details.submission.spec)
        gpu_usage = gpu_files.read(job, spec, json.loads(details.submission.provenance))
        used, why_unknown = _query(context.with_scheduler(job.scheduler), job, may_ask=may_ask)
        now = context.clock.now()
        is_old = now - (job.ended_at or now) > _COMPLETE_AFTER
        is_final = job.settled and job.state in jobs.TERMINAL
        if used is not None and is_final and (used.complete or is_old):
            # If the disk is full, the next call queries again.
            with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
                text = _to_json(used, gpu_usage)
                work.attempts.put_used_figures(job.row, job.attempt, text)
    assessed = efficiency.assess(
        job,
        used,
        gpu_usage,
        elapsed_seconds=_elapsed_seconds(job, context.clock.now()),
        why_unknown=why_unknown,
    )
    return assessed, gpu_usage


def _elapsed_seconds(job: jobs.Job, now: datetime.datetime) -> int | None:
    assert job.started_at is not None
    end = job.ended_at or (None if job.state in jobs.TERMINAL else now)
    return None if end is None else max(0, int((end - job.started_at).total_seconds()))


def _query(
    context: contexts.Context, job: jobs.Job, *, may_ask: bool
) -> tuple[efficiency.Used | None, str]:
    """Return what the attempt used, or why that is unknown."""
    if not may_ask:
        return None, "not queried (--no-refresh)"
    if job.state not in jobs.TERMINAL:
        return None, "reported when the job has ended"
    if job.job_id is None:
        return None, "the job has no ID"
    if not context.is_local:
        facts = clusters.known_facts(context)
        if facts is None or facts.cluster != job.cluster:
            return None, f"available on {job.cluster} only"
        if not facts.accounting:
            return None, "this cluster has no accounting"
        with context.store.reading() as work:
            error = slurm_queries.sacct_pause(work, facts.cluster, context.clock.now())
        if error:
            return None, error.splitlines()[0]
    try:
        since = job.created_at - slurm_queries.SACCT_MARGIN
        used = context.scheduler.used(job.job_id, job.submitted_at, since)
    except errors.SlurmError as exc:
        if isinstance(exc, failures.Unreachable):
            with contextlib.suppress(errors.DatabaseError):
                slurm_queries.pause_sacct(context, job.cluster, str(exc))
        return None, str(exc).splitlines()[0]
    return used, "" if used is not None else "the job is not in the accounting database"


def _to_json(used: efficiency.Used, gpu_usage: Sequence[gpus.GpuUsage]) -> str:
    return json.dumps(
        {"used": dataclasses.asdict(used), "gpus": [dataclasses.asdict(gpu) for gpu in gpu_usage]}
    )


def _from_json(text: str) -> tuple[efficiency.Used, list[gpus.GpuUsage]] | None:
    """Return what `_to_json` wrote; None if another version wrote other fields."""
    try:
        stored = json.loads(text)
        return efficiency.Used(**stored["used"]), [_gpu_usage(gpu) for gpu in stored["gpus"]]
    except (ValueError, TypeError, KeyError):
        return None


def _gpu_usage(data: dict[str, Any]) -> gpus.GpuUsage:
    spreads = {
        name: gpus.Spread(**value) for name, value in data.items() if isinstance(value, dict)
    }
    return gpus.GpuUsage(**{**data, **spreads})
