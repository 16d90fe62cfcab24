"""Log cursors: each part of a file is read by one reader."""

from __future__ import annotations

import dataclasses
import datetime

from orchestrator import jobs, metrics
from orchestrator.controller.session import stores
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


def test_a_cursor_moves_only_from_where_it_was_read(store: stores.Store) -> None:
    start = metrics.LogCursor(path="/r/1.out")
    one = dataclasses.replace(start, device=2**64 - 1, inode=2**63, offset_bytes=10**12, line=7)
    two = dataclasses.replace(
        one, offset_bytes=10**12 + 5, fingerprint="ab", matching={"known": True}
    )
    second = dataclasses.replace(start, path="/r/2.out", offset_bytes=1)
    metric = jobs.Metric(name="loss", value=1.5, source="log:olivia", path="/r/2.out")
    submission = builders.make_submission(1, NOW, name="digits")
    with store.writing() as work:
        row = work.jobs.add_submission(submission)[0].row
        cursors = work.log_cursors
        assert cursors.of(row) == []
        assert not cursors.move(row, two, expect=one)
        assert cursors.move(row, one, expect=None)
        assert not cursors.move(row, two, expect=None)
        assert cursors.move(row, two, expect=one)
        assert not cursors.move(row, one, expect=one)
        assert cursors.of(row) == [two]
        # Metrics of a file that has no cursor yet make one.
        work.metrics.add(row, [metrics.ParsedLine.of(metric)])
        assert cursors.move(row, second, expect=None)
        assert cursors.of_jobs([row, row + 1]) == {row: [two, second]}
        assert list(cursors.paths([row]).values()) == ["/r/1.out", "/r/2.out"]
