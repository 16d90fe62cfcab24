"""The progress bar of `wait`."""

from __future__ import annotations

import datetime
import io

from orchestrator import jobs
from orchestrator.api import progress
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 9, 0, tzinfo=datetime.UTC)
BEGUN = NOW - datetime.timedelta(minutes=15)


def test_a_job_shows_its_share_of_the_time_limit() -> None:
    running = builders.make_job(started_at=BEGUN, time_limit_seconds=3600, node_list="n1")
    assert progress.line([running], NOW) == (
        "7 RUNNING on n1 00:15:00 [#####               ] of at most 01:00:00"
    )
    pending = builders.make_job(state=jobs.JobState.PENDING, reason="Priority")
    assert progress.line([pending], NOW) == "7 PENDING (Priority)"
    ended = builders.make_job(
        state=jobs.JobState.COMPLETED, started_at=BEGUN, ended_at=NOW, settled=True
    )
    assert progress.line([ended], NOW) == "7 COMPLETED 00:15:00"


def test_several_jobs_show_how_many_ended() -> None:
    ended = builders.make_job(state=jobs.JobState.COMPLETED, settled=True)
    assert progress.line([ended, builders.make_job(row=2), ended, ended], NOW) == (
        "[###############     ] 3 of 4 jobs ended: 3 COMPLETED, 1 RUNNING"
    )


def test_a_terminal_shows_one_line() -> None:
    stream = io.StringIO()
    bar = progress.terminal_bar(stream)
    bar.show("one")
    bar.show("two")
    bar.close()
    assert stream.getvalue() == "\rone\x1b[K\rtwo\x1b[K\n"
