"""Log patterns: which lines of a log contain which metrics. Also parses metrics.jsonl."""

from __future__ import annotations

from orchestrator.patterns.jsonl import parse_jsonl
from orchestrator.patterns.loading import check, joined, load_shipped, select
from orchestrator.patterns.matching import Matcher
from orchestrator.patterns.records import Pattern, Value
