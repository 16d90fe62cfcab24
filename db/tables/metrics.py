"""Tables of log cursors and metrics."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables import column_types
from db.tables.columns import index, key, optional, reference, required, table

#: Values in a row of `metric_lines`; a line with more values takes several rows.
METRIC_PLACES = 8

#: How far a file of a job has been read. Numbered, because metric_sets.log_id names these rows.
LOG_CURSORS = table(
    "log_cursors",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(column_types.TEXT, "path"),
    # Text: st_dev and st_ino are unsigned 64-bit numbers, which no integer column holds.
    *required(column_types.DIGITS, "device", "inode"),
    *required(column_types.large(0), "offset_bytes", "line"),
    # JSON of the reader: partial line, attempt, and what patterns keep from line to line.
    *required(column_types.CARRY, "carry"),
    *required(column_types.TIME, "updated_at"),
    sa.UniqueConstraint("job_row", "path"),
    numbered=True,
)

#: What similar lines have in common.
METRIC_SETS = table(
    "metric_sets",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    # log_cursors.id of the file. No foreign key: each deleted cursor would search all sets; both
    # are deleted with their job.
    *optional(column_types.WHOLE, "log_id"),
    *required(column_types.COUNT, "attempt"),
    *required(column_types.TEXT, "source"),
    *optional(column_types.LARGE, "rank", "world_size"),
    # Names and units of the values, in their places; NULL after the last one.
    *required(column_types.TEXT, "name0", "unit0"),
    *optional(
        column_types.TEXT,
        *(f"{part}{n}" for n in range(1, METRIC_PLACES) for part in ("name", "unit")),
    ),
    index("job_row"),
    numbered=True,
)

#: The values of one line of a log or a metrics.jsonl. With seven values a line this takes a fifth
#: of the time and an eighth of the space of one row for each value (measured). Numbered, because
#: a reader that follows the metrics of a job asks for those after the last number.
METRIC_LINES = table(
    "metric_lines",
    key("id", column_types.LARGE_KEY),
    reference("set_id", "metric_sets.id", with_parent=True),
    *optional(column_types.LARGE, "step", "epoch", "line"),
    *optional(column_types.FOREIGN_TIME, "time"),
    # In the places of the names in the set; NULL is NaN.
    *optional(column_types.REAL, *(f"value{place}" for place in range(METRIC_PLACES))),
    index("set_id"),
    numbered=True,
)
