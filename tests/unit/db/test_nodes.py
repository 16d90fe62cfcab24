"""How attempts ended, by nodes, and the repeats of sweeps."""

from __future__ import annotations

import datetime

from orchestrator import jobs
from orchestrator.controller.session import stores
from orchestrator.jobs import JobState
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def test_ends(database_url: str) -> None:
    with stores.Store(database_url) as store:
        with store.writing() as work:

            def attempt(row: int, number: int, state: JobState, hours: float) -> None:
                ended_at = None if hours < 0 else NOW - hours * HOUR
                end = jobs.Attempt(
                    number=number,
                    state=state,
                    node_list="n[1-2]",
                    started_at=NOW - 2 * HOUR,
                    ended_at=ended_at,
                )
                work.attempts.put([(row, end)])

            for number, scheduler in enumerate(("slurm", "slurm", "slurm", "local"), 1):
                work.jobs.add_submission(
                    builders.make_submission(number, NOW, name="train", scheduler=scheduler),
                    settled=number != 3,
                    attempt=1 if number == 1 else 0,
                )
                attempt(number, 0, JobState.COMPLETED if number > 1 else JobState.NODE_FAIL, 1)
            attempt(1, 1, JobState.FAILED, -1)
            event = jobs.JobEvent(
                at=NOW, kind="cause", attempt=1, source="log", detail="x: y on n2"
            )
            work.events.add_many([(1, event), (2, event)])
        with store.reading() as work:
            found = work.nodes.ends(NOW - 3 * HOUR)
            # Of job 3 the attempt is still the newest and may change; job 4 ran without Slurm.
            assert sorted(
                (end.state, end.finding, end.at, end.job_row, end.count) for end in found
            ) == [
                ("COMPLETED", None, NOW - HOUR, 2, 1),
                ("FAILED", "x: y on n2", NOW - 2 * HOUR, 1, 1),
                ("NODE_FAIL", None, NOW - HOUR, 1, 1),
            ]
            assert {(end.cluster, end.node_list, end.name) for end in found} == {
                (found[0].cluster, "n[1-2]", "train")
            }
            assert len(work.nodes.ends(NOW - 1.5 * HOUR)) == 2
            assert work.nodes.repeats(NOW - HOUR, 10) == []
