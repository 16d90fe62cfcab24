"""Metrics of jobs between their files, the database and the user. Frozen records; no I/O."""

from orchestrator.metrics.records import LogCursor, MetricQuery, MetricRow, ParsedLine
