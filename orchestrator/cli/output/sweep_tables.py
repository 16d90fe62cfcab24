"""Columns of tables of sweeps and their points."""

from __future__ import annotations

from orchestrator.cli.output import Column

SWEEP_COLUMNS = (
    Column("name", "name"),
    Column("kind", drop=3),
    Column("state", drop=4),
    Column("points"),
    Column("completed"),
    Column("failed"),
    Column("missing", drop=7),
    Column("running", drop=8),
    Column("pending", drop=9),
    Column("waiting", drop=5),
    Column("unsubmitted", drop=6),
    Column("gpu_hours", drop=2),
    Column("created_at", drop=1),
    Column("row"),
)
STATE_COLUMNS = (Column("state"), Column("points"), Column("exit"), Column("reason", "text"))
POINT_COLUMNS = (
    Column("number"),
    Column("name", "name"),
    Column("state"),
    Column("job_id"),
    Column("exit", drop=3),
    Column("elapsed", drop=2),
    Column("reason", "text", drop=4),
    Column("row", drop=1),
)
SUBMISSION_COLUMNS = (
    Column("points"),
    Column("nodes"),
    Column("gpus_per_node"),
    Column("partition", drop=2),
    Column("time_limit", drop=3),
    Column("first", "name", drop=4),
    Column("last", "name", drop=1),
)
