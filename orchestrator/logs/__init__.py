"""Reads, searches, shows and follows job logs.

A log may have any content and size, on NFS or Lustre. So it is opened anew for each read (NFS shows
writes of other hosts on open), never watched (inotify misses remote writes), and never held in
memory as a whole.
"""

from __future__ import annotations

from orchestrator.logs.files import NO_LOG_YET
from orchestrator.logs.following import Followed, follow, follow_all
from orchestrator.logs.head_and_tail import Scan, scan
from orchestrator.logs.lines import BANNER_START, banner_pattern, clean, split
from orchestrator.logs.reading import (
    READ_LIMIT_BYTES,
    Chunk,
    Line,
    Position,
    Search,
    is_large,
    read,
    unread_bytes,
)
from orchestrator.logs.searching import (
    BadExpressionError,
    Hit,
    Span,
    attempt_span,
    compile_expression,
    search,
)
from orchestrator.logs.tailing import for_terminal, tail
