"""Tables of jobs, attempts and chains."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.cli import output
from orchestrator.cli.output import Column
from orchestrator.rows import job_rows

#: Columns of a table; JSON has all fields of job_row().
JOB_COLUMNS = (
    # Tasks of an array with the same state are one row: 41_[0,3-5,...].
    Column("job_id", "parts"),
    Column("name", "name"),
    Column("state"),
    Column("reason", "text", drop=7),
    Column("elapsed", drop=6),
    Column("time_limit", drop=3),
    Column("nodes", drop=1),
    Column("gpus", drop=4),
    Column("node_list", "parts", drop=2),
    Column("row", drop=5),
)
ATTEMPT_COLUMNS = (
    Column("number"),
    Column("state"),
    Column("exit"),
    Column("node_list", "parts", drop=1),
    Column("started_at", drop=2),
    Column("ended_at"),
    Column("reason", "text"),
)
CHAIN_COLUMNS = (
    Column("job_id"),
    Column("attempt", drop=4),
    Column("state"),
    Column("step", drop=3),
    Column("then", "text"),
)


def print_jobs(shown: Sequence[jobs.Job], now: datetime.datetime, form: str) -> None:
    print_job_rows([job_rows.job_row(job, now) for job in shown], form)


def print_job_rows(rows: Sequence[output.Row], form: str) -> None:
    output.print_rows("jobs", rows, JOB_COLUMNS, form, line=job_rows.job_line)
