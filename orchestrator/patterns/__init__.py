"""Named patterns: the lines of a log, and of a metrics.jsonl, -> metrics."""

from __future__ import annotations

from orchestrator.patterns.jsonl import parse_jsonl
from orchestrator.patterns.loading import check, joined, load, load_shipped, select
from orchestrator.patterns.matching import Matcher, Reading
from orchestrator.patterns.records import Keep, LineKind, Pattern, Value
from orchestrator.patterns.scanning import Scanner

__all__ = [
    "Keep",
    "LineKind",
    "Matcher",
    "Pattern",
    "Reading",
    "Scanner",
    "Value",
    "check",
    "joined",
    "load",
    "load_shipped",
    "parse_jsonl",
    "select",
]
