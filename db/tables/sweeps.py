"""Tables of sweeps and baselines."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import column_types
from db.tables.columns import index, key, optional, reference, required, table

SWEEPS = table(
    "sweeps",
    key("id"),
    *required(column_types.TEXT, "name", "kind", "cluster", "profile"),
    # The spec file, and the folder of the submission.
    *required(column_types.TEXT, "source", "folder"),
    # Nothing more of a cancelled sweep is submitted.
    *required(column_types.word("open", "cancelled"), "state"),
    *required(column_types.SCHEDULER, "scheduler"),
    *optional(column_types.whole(1), "max_running"),
    *required(column_types.TIME, "created_at"),
    # The keys of the spec file, with those of the command line.
    *required(column_types.JSON, "spec"),
    index("name"),
    numbered=True,
)

#: What the points of a sweep that differ only in arguments have in common.
SWEEP_SHAPES = table(
    "sweep_shapes",
    key("id"),
    reference("sweep_id", "sweeps.id", with_parent=True),
    *required(column_types.TEXT, "shape"),
    # Of one point that runs until its time limit; NULL if that is unknown.
    *optional(column_types.REAL, "gpu_hours", "node_hours"),
    # The job with the arguments that all points start with.
    *required(column_types.DOCUMENT, "spec"),
    index("sweep_id"),
)

#: A point of a sweep, and the newest job of it.
SWEEP_POINTS = table(
    "sweep_points",
    reference("sweep_id", "sweeps.id", with_parent=True),
    # From 1, in the order of the sweep.
    *required(column_types.whole(1), "number"),
    *required(column_types.TEXT, "identity", "name"),
    *required(column_types.COUNT, "repeat"),
    reference("shape_id", "sweep_shapes.id"),
    # NULL before the point is submitted. A job of a point is never deleted alone.
    reference("job_row", "jobs.row", optional=True),
    # By dotted key: the varied settings, and the values of the spec that they change.
    *required(column_types.ARGUMENTS, "settings", "changes"),
    sa.PrimaryKeyConstraint("sweep_id", "number"),
    sa.UniqueConstraint("sweep_id", "identity"),
    # A job belongs to one point, and the states of all points are read from this index.
    sa.UniqueConstraint("job_row"),
    sa.Index("ix_sweep_points_jobs", "sweep_id", "job_row"),
)

#: Saved measurements, which outlive their jobs. Rows are only added; the newest of a name counts.
BASELINES = table(
    "baselines",
    key("id"),
    # The source is the jobs, the sweep or the file of the measurements.
    *required(column_types.TEXT, "name", "source"),
    *required(column_types.TIME, "created_at"),
    *required(column_types.COUNT, "runs"),
    *required(column_types.DOCUMENT, "measurements"),
    index("name"),
    numbered=True,
)
