"""Records of metrics, their queries and the cursors of logs. Frozen; no I/O."""

from orchestrator.metrics.records import (
    LogCursor,
    MetricQuery,
    MetricRow,
    Numbers,
    ParsedLine,
    SetLines,
)
