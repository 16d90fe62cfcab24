"""Job logs: what was added since last time, for machines; the end and what follows, for people.

A log is any bytes, of any size, on a file system that may be NFS or Lustre. It is opened anew for
each read (NFS shows other hosts' writes on open), never watched (inotify misses remote writes), and
never held in memory as a whole.
"""

from __future__ import annotations

from orchestrator.logs.attempts import Span, attempt_span
from orchestrator.logs.files import NO_LOG_YET
from orchestrator.logs.following import Followed, follow_all
from orchestrator.logs.lines import BANNER_START, banner_pattern, clean, split
from orchestrator.logs.reading import (
    READ_LIMIT_BYTES,
    Chunk,
    Line,
    Position,
    Search,
    is_large,
    left_bytes,
    read,
)
from orchestrator.logs.scanning import Scan, scan
from orchestrator.logs.searching import BadExpressionError, Hit, compile_expression, search
from orchestrator.logs.showing import follow, for_terminal, tail

__all__ = [
    "BANNER_START",
    "NO_LOG_YET",
    "READ_LIMIT_BYTES",
    "BadExpressionError",
    "Chunk",
    "Followed",
    "Hit",
    "Line",
    "Position",
    "Scan",
    "Search",
    "Span",
    "attempt_span",
    "banner_pattern",
    "clean",
    "compile_expression",
    "follow",
    "follow_all",
    "for_terminal",
    "is_large",
    "left_bytes",
    "read",
    "scan",
    "search",
    "split",
    "tail",
]
