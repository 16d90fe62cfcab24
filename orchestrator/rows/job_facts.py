"""The facts about a job in full, each with a label."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from orchestrator import jobs
from orchestrator.diagnosis import exit_codes
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.jobs import naming
from orchestrator.rows import job_rows, row_values

#: Label -> field of a job.
SITE = {"Cluster": "cluster", "Partition": "partition", "Account": "account", "QOS": "qos"}
_TIMES = {"Submitted": "submitted_at", "Started": "started_at", "Ended": "ended_at"}
_PATHS = {"Run folder": "run_dir", "Log": "stdout_path", "Error log": "stderr_path"}


def facts(
    job: jobs.Job, row: row_values.Row, provenance: Mapping[str, object], pruned: str
) -> Iterator[tuple[str, object]]:
    """Yield labels and values; those that are None or empty are not shown."""
    yield "Job", f"{job.job_id or '-'} (@{job.row})"
    yield "Name", job.name
    raw = "" if job.raw_state in (None, job.state) else f" (Slurm: {job.raw_state})"
    yield "State", f"{job.state}{raw}"
    yield "Reason", pending_reasons.reason_sentence(job)
    yield "Next try", row["resend_at"]
    yield "Next start", row["next_start_at"]
    for alert in job.current_alerts:
        yield "Alert", f"{alert.rule}: {alert.detail}"
    code = job_rows.exit_text(job.exit_code, job.exit_signal)
    known = exit_codes.meaning(job)
    yield "Exit code", f"{code} ({known[1]})" if code and known else code
    if job.cause is not None:
        yield "Cause", f"{job.cause} (see `orchestrator explain {naming.name_of(job)}`)"
    yield from named(job, SITE)
    yield "Nodes", f"{job.nodes} ({job.node_list})" if job.nodes and job.node_list else job.nodes
    yield "GPUs", job.gpus
    elapsed = row_values.elapsed(row["elapsed_seconds"])
    limit = row_values.elapsed(job.time_limit_seconds)
    yield "Time", f"{elapsed} of {limit}" if elapsed and limit else elapsed or limit
    yield from named(job, _TIMES)
    yield "Arguments", row["arguments"] and shlex.join(row["arguments"])
    yield "Labels", ", ".join(job.labels)
    yield from named(job, _PATHS)
    yield "Note", pruned
    yield "Spec", provenance.get("spec")
    commit = str(provenance.get("git_commit") or "")
    branch = f" ({provenance['git_branch']})" if provenance.get("git_branch") else ""
    changes = " with uncommitted changes (show --code)" if provenance.get("git_dirty") else ""
    yield "Commit", f"{commit[:12]}{branch}{changes}" if commit else None
    yield "Token", job.token
    yield "Stale since", job.stale_since


def named(job: jobs.Job, fields: Mapping[str, str]) -> list[tuple[str, object]]:
    """Return values of a job with their labels; fields: label -> attribute."""
    return [(name, getattr(job, field)) for name, field in fields.items()]
