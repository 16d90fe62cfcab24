"""What `show` tells of an array: how its tasks are, and which failed first."""

from __future__ import annotations

import collections
import datetime
from collections.abc import Mapping, Sequence

import click

from orchestrator import jobs
from orchestrator.cli import output, views
from orchestrator.jobs import naming

#: So many of those that ended badly are named; `status` has all.
FIRST = 10
COLUMNS = ("job_id", "state", "exit", "ended_at", "stdout_path")


def summary(tasks: Sequence[jobs.Job], papers: Mapping[str, object]) -> dict[str, object]:
    """Return the array in one record: counts by state, and its first tasks that ended badly."""
    first = tasks[0]
    counts = collections.Counter(str(job.state) for job in tasks)
    bad = [
        job
        for job in tasks
        # What was never submitted did not end, and it may wait for room.
        if job.state in jobs.TERMINAL - {jobs.JobState.COMPLETED, jobs.JobState.NOT_SUBMITTED}
    ]
    bad.sort(key=lambda job: (job.ended_at is None, job.ended_at, job.row))
    return {
        "array_job_id": first.array_job_id,
        "name": first.name,
        "tasks": len(tasks),
        "states": dict(counts.most_common()),
        "first_failures": [_failure(job) for job in bad[:FIRST]],
        "cluster": first.cluster,
        "partition": first.partition,
        "account": first.account,
        "qos": first.qos,
        "run_dir": first.run_dir,
        "token": first.token,
        "provenance": papers,
    }


def show(tasks: Sequence[jobs.Job], record: Mapping[str, object], now: datetime.datetime) -> None:
    """Print the summary for a person."""
    first = tasks[0]
    papers = record["provenance"]
    assert isinstance(papers, Mapping)
    rows = f"@{first.row}-{tasks[-1].row}"
    fields = [
        ("Array", f"{first.array_job_id or '-'} ({rows})"),
        ("Name", first.name),
        ("Tasks", f"{len(tasks)}, {naming.names_of(tasks)}"),
        ("Cluster", first.cluster),
        ("Partition", first.partition),
        ("Account", first.account),
        ("QOS", first.qos),
        ("Labels", ", ".join(first.labels)),
        ("Run folder", first.run_dir),
        ("Spec", papers.get("spec")),
        ("Token", first.token),
    ]
    for name, value in fields:
        output.field(name, value)
    click.echo("\nStates:")
    output.items("jobs", views.folded_lines(tasks, now), views.JOB_COLUMNS, "table")
    failures = record["first_failures"]
    assert isinstance(failures, list)
    if failures:
        click.echo("\nEnded badly, the first:")
        output.items("failures", failures, COLUMNS, "table")


def _failure(job: jobs.Job) -> dict[str, object]:
    code = job.exit_code
    return {
        "job_id": job.job_id,
        "state": str(job.state),
        "reason": job.reason,
        "exit": None if code is None else f"{code}:{job.exit_signal or 0}",
        "ended_at": job.ended_at,
        "stdout_path": job.stdout_path,
    }
