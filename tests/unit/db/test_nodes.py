"""How attempts ended, by nodes, and the repeats of sweeps."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

from orchestrator import config, jobs, metrics, nodes, sweeps
from orchestrator.controller.nodes import record
from orchestrator.controller.session import stores
from orchestrator.jobs import JobState
from orchestrator.toml import documents
from tests import builders

NOW = datetime.datetime(2026, 11, 28, 8, 0, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SWEEP = """\
[job]
name = "train"
time_limit = "10"
[launch]
script = "train.py"
[sweep]
kind = "grid"
repeats = 5
axes.args.lr = [0.1, 0.2]
"""


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
            slow = ("slow: x", "straggler: rank 1 on n2", "straggler: rank 1 on n2")
            alerts = [jobs.JobEvent(at=NOW, kind="alert", source="x", detail=d) for d in slow]
            work.events.add_many((1, alert) for alert in alerts)
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
            (straggler,) = work.nodes.stragglers(NOW - HOUR)
            assert straggler == nodes.Straggler(
                cluster=found[0].cluster,
                node_list="n[1-2]",
                sentence="straggler: rank 1 on n2",
                at=NOW,
                job_row=1,
            )
            assert work.nodes.stragglers(NOW + HOUR) == []
            assert len(work.nodes.ends(NOW - 1.5 * HOUR)) == 2
            assert work.nodes.repeats(NOW - HOUR, 10) == []


def test_slow_repeats(database_url: str, tmp_path: Path) -> None:
    """Three repeats run on n1, n2 and n3, and two slower ones on n4, whose other point is fast."""
    document, problems = documents.parse(SWEEP, "s.toml")
    sweep = sweeps.expand(document, config.Profile(), problems)
    throughputs = {("n1", 1): 100, ("n2", 2): 101, ("n3", 3): 99, ("n4", 4): 70, ("n4", 5): 71}
    with stores.Store(database_url) as store:
        with store.writing() as work:
            fields = {"profile": "p", "cluster": "lab", "scheduler": "slurm", "source": "s.toml"}
            stored = work.sweeps.add(sweep, **fields, folder="/home/a", created_at=NOW)
            points = sweeps.points_of(work.sweeps.points(stored.row))
            hosts = [
                next(host for host, repeat in throughputs if repeat == point.repeat)
                for point in points
            ]
            for number, (point, host) in enumerate(zip(points, hosts, strict=True), 1):
                (job,) = work.jobs.add_submission(
                    builders.make_submission(number, NOW, name="train"),
                    state=JobState.COMPLETED,
                    settled=True,
                    node_list=host,
                    ended_at=NOW - HOUR,
                )
                assert work.sweeps.assign_jobs(stored.row, [point], [job.row])
                is_slow = point.settings == {"args.lr": 0.1}
                value = throughputs[host, point.repeat] if is_slow else 100 + point.repeat
                lines = [
                    jobs.Metric(name="throughput", value=v, source="jsonl", path="m", line=n)
                    for n, v in enumerate((1.0, value, value, value), 1)
                ]
                work.metrics.add(job.row, [metrics.ParsedLine.of(line) for line in lines])
        context = builders.make_context(tmp_path, store, now=NOW)
        found = record.read(context)
        assert [(node.name, node.problems, node.is_excluded) for node in found] == [
            ("n4", "2 slow runs", True)
        ]
        # A sweep reads the record once, not once for each of its points.
        automatic = config.Nodes(exclude="auto")
        context = dataclasses.replace(
            context, configuration=dataclasses.replace(context.configuration, nodes=automatic)
        )
        with store.writing() as work:
            work.settings.put("nodes:lab", json.dumps([NOW.isoformat(), ["n1", "n2", "n3", "n4"]]))
        seconds = 100.0
        context = builders.with_clock(context, boot_seconds=lambda: seconds)
        assert [node.name for node in record.excluded(context, "lab")] == ["n4"]
        with store.writing() as work:
            work.settings.put("nodes:lab", json.dumps([NOW.isoformat(), ["n1", "n2", "n3"]]))
        assert [node.name for node in record.excluded(context, "lab")] == ["n4"]
        seconds += record.EXCLUDED_SECONDS
        assert record.excluded(context, "lab") == []
