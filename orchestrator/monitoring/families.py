"""The exported metrics: names, meaning and labels.

Times are exported as timestamps: `time() - X` is the age also if the export stops. Only live jobs
have labels with their names.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.monitoring import records
from orchestrator.monitoring.text_format import Family, Sample
from orchestrator.text import escaping


def families(facts: records.Facts) -> Iterator[Family]:
    """Yield all exported metrics. docs/howto/monitoring.md lists them."""
    yield _gauge("build_info", "Version of orchestrator.", 1, version=facts.version)
    yield _time("collected", "When these values were read from the database.", facts.at)
    yield from _jobs(facts)
    yield from _totals(facts)
    yield from _live_jobs(facts)
    yield from _controller(facts)


def _jobs(facts: records.Facts) -> Iterator[Family]:
    counts = {str(state): facts.counts.get(state, 0) for state in jobs.JobState}
    yield _by("jobs", "Jobs and array tasks in the database by state.", "state", counts)
    yield _gauge("running_gpus", "GPUs of running jobs.", facts.running_gpus)
    yield _time(
        "oldest_pending_submitted",
        "When the job was submitted that has been pending for the longest time.",
        facts.oldest_pending_at,
    )
    yield _time(
        "last_job_failure",
        "When the last job ended in a failed state, such as FAILED or TIMEOUT.",
        facts.last_failure_at,
    )


def _totals(facts: records.Facts) -> Iterator[Family]:
    def by(name: str) -> dict[str, float]:
        found = {label: value for (key, label), value in facts.totals.items() if key == name}
        return dict(sorted(found.items()))

    def total(name: str) -> float:
        return facts.totals.get((name, ""), 0)

    ended = {str(state): 0.0 for state in sorted(jobs.TERMINAL)} | by("attempts")
    yield _by("attempts_ended_total", "Ended starts of jobs by final state.", "state", ended)
    yield _counter(
        "gpu_seconds_total",
        "GPU time of ended starts: allocated GPUs times their duration.",
        total("gpu_seconds"),
    )
    yield Family(
        name="orchestrator_queue_wait_seconds",
        kind="summary",
        help="Time between submission and start, of ended starts.",
        samples=[
            Sample(total("queue_wait_seconds"), suffix="_sum"),
            Sample(total("queue_waits"), suffix="_count"),
        ],
    )
    retries = {"continue": 0.0, "requeue": 0.0} | by("retries")
    yield _by("retries_total", "Retries after failures by action.", "action", retries)
    yield _by("notices_total", "Notices by kind.", "kind", facts.notices)
    unsent = {"failed": 0, "sending": 0, "waiting": 0} | dict(facts.deliveries)
    help = "Notices that are not sent, by the state of their delivery."
    yield _by("notices_unsent", help, "state", unsent)


def _live_jobs(facts: records.Facts) -> Iterator[Family]:
    def of_jobs(
        name: str,
        help: str,
        value: Callable[[records.JobFacts], float | datetime.datetime | None],
        more: Callable[[records.JobFacts], Mapping[str, str]] = lambda known: {},
    ) -> Family:
        samples = [
            Sample(_number(number), _labels({**_of_job(known.job), **more(known)}))
            for known in facts.live
            if (number := value(known)) is not None
        ]
        return Family(name=f"orchestrator_job_{name}", kind="gauge", help=help, samples=samples)

    yield of_jobs(
        "info",
        "Live jobs; the value is 1.",
        lambda known: 1,
        lambda known: {
            "state": str(known.job.state),
            "partition": known.job.partition or "",
            "sweep": known.job.sweep or "",
        },
    )
    yield of_jobs(
        "submitted_timestamp_seconds",
        "When a pending job was submitted.",
        lambda known: known.job.submitted_at if _is(known, jobs.JobState.PENDING) else None,
    )
    yield of_jobs(
        "started_timestamp_seconds",
        "When the current attempt of a running job started.",
        lambda known: known.job.started_at if _is(known, jobs.JobState.RUNNING) else None,
    )
    yield of_jobs("gpus", "GPUs of the job.", lambda known: known.job.gpus)
    yield of_jobs(
        "restarts", "How often the job was started again.", lambda known: known.job.restart_count
    )
    yield of_jobs(
        "last_progress_timestamp_seconds",
        "When a running job last wrote to its log or its file of metrics.",
        lambda known: known.progress_at,
    )
    yield of_jobs(
        "throughput",
        "Last throughput in the log.",
        lambda known: known.throughput and known.throughput.value,
        lambda known: (
            {"metric": known.throughput.name, "unit": known.throughput.unit}
            if known.throughput
            else {}
        ),
    )
    yield of_jobs(
        "step",
        "Step of the last throughput in the log.",
        lambda known: known.throughput and known.throughput.step,
    )
    alerts = [
        Sample(1, _labels({**_of_job(known.job), "rule": alert.rule}))
        for known in facts.live
        for alert in known.job.current_alerts
    ]
    help = "Alerts of running jobs; the value is 1."
    yield Family(name="orchestrator_job_alert", kind="gauge", help=help, samples=alerts)
    help = f"Live jobs without series of their own: more than {records.MAX_JOBS} are live."
    yield _gauge("live_jobs_dropped", help, facts.dropped)


def _controller(facts: records.Facts) -> Iterator[Family]:
    failing = {known.cluster: float(known.is_failing) for known in facts.slurm}
    yield _by("slurm_failing", "Whether the last query of Slurm failed (1).", "cluster", failing)
    answered = {
        known.cluster: known.answered_at.timestamp()
        for known in facts.slurm
        if known.answered_at is not None
    }
    name = "slurm_answered_timestamp_seconds"
    yield _by(name, "When squeue last answered.", "cluster", answered)
    known = facts.controller
    help = "Whether a controller runs, makes its passes in time and no step keeps failing (1)."
    yield _gauge("controller_healthy", help, known is not None and known.is_healthy)
    if known is None:
        return
    yield _time("controller_last_pass", "Start of the controller's last pass.", known.last_pass_at)
    help = "Duration of the controller's last pass."
    yield _gauge("controller_pass_duration_seconds", help, known.took_seconds)
    help = "Whether a step of the controller's last pass failed (1)."
    yield _by("controller_step_failed", help, "step", known.steps)


def _is(known: records.JobFacts, state: jobs.JobState) -> bool:
    return known.job.state is state


def _of_job(job: jobs.Job) -> dict[str, str]:
    # Prometheus itself sets a label `job`.
    return {"job_id": naming.name_of(job), "name": job.name, "cluster": job.cluster}


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    # Bytes that are not UTF-8 could not be written.
    return {name: escaping.visible(value) for name, value in labels.items()}


def _number(value: float | datetime.datetime) -> float:
    return value.timestamp() if isinstance(value, datetime.datetime) else float(value)


def _gauge(name: str, help: str, value: float, **labels: str) -> Family:
    samples = [Sample(float(value), _labels(labels))]
    return Family(name=f"orchestrator_{name}", kind="gauge", help=help, samples=samples)


def _counter(name: str, help: str, value: float) -> Family:
    samples = [Sample(value)]
    return Family(name=f"orchestrator_{name}", kind="counter", help=help, samples=samples)


def _time(name: str, help: str, at: datetime.datetime | None) -> Family:
    samples = [] if at is None else [Sample(at.timestamp())]
    name = f"orchestrator_{name}_timestamp_seconds"
    return Family(name=name, kind="gauge", help=help, samples=samples)


def _by(name: str, help: str, label: str, values: Mapping[str, float]) -> Family:
    kind: Literal["counter", "gauge"] = "counter" if name.endswith("_total") else "gauge"
    samples = [Sample(float(value), _labels({label: key})) for key, value in values.items()]
    return Family(name=f"orchestrator_{name}", kind=kind, help=help, samples=samples)
