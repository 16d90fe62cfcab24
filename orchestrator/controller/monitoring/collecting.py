"""Collects the facts that monitoring exports. Slurm is not asked."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import NamedTuple

import orchestrator
from db import unit_of_work
from orchestrator import jobs, metrics, monitoring
from orchestrator.controller.diagnosis import alerts as alert_checks
from orchestrator.controller.service import health
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import alerts
from orchestrator.monitoring import families, text_format

#: Final states of jobs that failed, as in docs/monitoring/alerts.yml.
FAILED = jobs.TERMINAL - {
    jobs.JobState.COMPLETED,
    jobs.JobState.CANCELLED,
    jobs.JobState.PREEMPTED,
    jobs.JobState.REVOKED,
}


def text(context: contexts.Context) -> str:
    """Return all metrics in Prometheus' text format. Raises DatabaseError."""
    return text_format.text(families.families(collect(context)))


def collect(context: contexts.Context) -> monitoring.Facts:
    """Return the facts from the database and the files of running jobs. Raises DatabaseError."""
    now = context.clock.now()
    everything = jobs.JobQuery(limit=None)
    with context.store.reading() as work:
        live = _live(work)
        facts = monitoring.Facts(
            version=orchestrator.__version__,
            at=now,
            counts=work.job_lists.counts(everything),
            totals=work.monitoring.totals(),
            live=live.shown,
            dropped=live.dropped,
            running_gpus=work.monitoring.running_gpus(),
            oldest_pending_at=work.monitoring.oldest_pending_at(),
            last_failure_at=work.monitoring.last_failure_at(FAILED),
            notices=work.monitoring.notices(),
            deliveries=work.monitoring.deliveries(),
            slurm=[
                monitoring.SlurmFacts(
                    cluster=state.cluster,
                    answered_at=state.last_good_squeue_at,
                    is_failing=state.failing_since is not None,
                )
                for state in work.refreshes.all()
            ],
            controller=None,
        )
    # Files may be slow: not within the transaction.
    return dataclasses.replace(
        facts,
        live=[
            dataclasses.replace(known, progress_at=_progress_at(known.job)) for known in live.shown
        ],
        controller=_controller(context, now),
    )


class _Live(NamedTuple):
    shown: list[monitoring.JobFacts]
    #: number of others
    dropped: int


def _live(work: unit_of_work.UnitOfWork) -> _Live:
    """Return the newest live jobs, running ones first."""
    most = monitoring.MAX_JOBS
    is_running = jobs.JobQuery(live=True, states=[jobs.JobState.RUNNING], limit=most)
    running = work.jobs.find(is_running)
    newest = work.jobs.find(jobs.JobQuery(live=True, limit=most))
    total = work.job_lists.number(jobs.JobQuery(live=True), is_folded=False)
    shown = list({job.row: job for job in [*running, *newest]}.values())[:most]
    query = metrics.MetricQuery(
        job_rows=tuple(job.row for job in running),
        names=alerts.THROUGHPUTS,
        prefer_jsonl=True,
        last=1,
    )
    values = work.metrics.by_job(query) if running else {}
    known = [
        monitoring.JobFacts(job=job, throughput=_throughput(job, values.get(job.row, [])))
        for job in shown
    ]
    return _Live(known, total - len(known))


def _progress_at(job: jobs.Job) -> datetime.datetime | None:
    # The files of a job on another machine are not here.
    if job.state is not jobs.JobState.RUNNING or clusters.other_machine(job):
        return None
    return alert_checks.written_at(job)


def _throughput(job: jobs.Job, values: Sequence[jobs.Metric]) -> monitoring.Throughput | None:
    """Return the last value of the first known throughput of the current attempt."""
    for name in alerts.THROUGHPUTS:
        for value in reversed(values):
            is_current = value.name == name and value.attempt == job.attempt
            if is_current and not value.rank and math.isfinite(value.value):
                return monitoring.Throughput(name, value.unit, value.value, value.step)
    return None


def _controller(
    context: contexts.Context, now: datetime.datetime
) -> monitoring.ControllerFacts | None:
    state = health.examine(context.store, context.configuration.state_dir, now)
    if state.newest is None:
        return None
    return monitoring.ControllerFacts(
        is_healthy=not state.problems,
        last_pass_at=state.newest.last_pass_at,
        took_seconds=state.newest.took_seconds,
        steps={step: bool(error) for step, error in state.newest.steps.items()},
    )
