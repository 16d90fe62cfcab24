"""Tables of log cursors and metrics."""

from __future__ import annotations

import sqlalchemy as sa

from db.tables.base import COUNT, TEXT, index, key, optional, reference, required, table
from db.tables.column_types import Digits, Document, Key, Large, Real, UtcDateTime, Whole

#: Values in a row of `metric_lines`; a line with more values takes several rows.
METRIC_PLACES = 8

#: How far a file of a job has been read. Numbered, because metric_sets.log_id names these rows.
LOG_CURSORS = table(
    "log_cursors",
    key("id"),
    reference("job_row", "jobs.row", with_parent=True),
    *required(TEXT, "path"),
    # Text: st_dev and st_ino are unsigned 64-bit numbers, which no integer column holds.
    *required(Digits(), "device", "inode"),
    *required(Large(0), "offset_bytes", "line"),
    # JSON of the reader: partial line, attempt, and what patterns keep from line to line.
    *required(Document(or_empty=True), "carry"),
    *required(UtcDateTime(), "updated_at"),
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
    *optional(Whole(), "log_id"),
    *required(COUNT, "attempt"),
    *required(TEXT, "source"),
    *optional(Large(), "rank", "world_size"),
    # Names and units of the values, in their places; NULL after the last one.
    *required(TEXT, "name0", "unit0"),
    *optional(TEXT, *(f"{part}{n}" for n in range(1, METRIC_PLACES) for part in ("name", "unit"))),
    index("job_row"),
    numbered=True,
)

#: The values of one line of a log or a metrics.jsonl. With seven values a line this takes a fifth
#: of the time and an eighth of the space of one row for each value (measured). Numbered, because
#: a reader that follows the metrics of a job asks for those after the last number.
METRIC_LINES = table(
    "metric_lines",
    key("id", Key(1)),
    reference("set_id", "metric_sets.id", with_parent=True),
    *optional(Large(), "step", "epoch", "line"),
    *optional(UtcDateTime(any_year=True), "time"),
    # In the places of the names in the set; NULL is NaN.
    *optional(Real(), *(f"value{place}" for place in range(METRIC_PLACES))),
    index("set_id"),
    numbered=True,
)
