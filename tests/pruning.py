"""A database with jobs of all kinds and their run folders, for tests of `prune`.

Each job is added with whether it may go. `World.damage()` then says what was lost of the others.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator import config, jobs, metrics, specs, sweeps
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder
from orchestrator.graphs import records as graph_records
from orchestrator.jobs import JobState, dependency
from orchestrator.recovery import Action, Decision
from orchestrator.schedules import records as schedule_records
from orchestrator.toml import documents

NOW = datetime.datetime(2026, 11, 27, 12, 0, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
_PROVENANCE = {
    "folder": "/home/a",
    "spec": "x.toml",
    "template": "job.sbatch.j2",
    "template_sha256": "0123456789ab",
}
_SWEEP = """\
[job]
name = "point"
[launch]
launcher = "python"
module = "x"
[sweep]
kind = "grid"
axes.args.lr = [0.1, 0.2, 0.3]
"""
_MEASUREMENTS = '{"unit": "gpus", "measurements": []}'
STEPS = (1, 2, 3)


@dataclasses.dataclass
class World:
    context: contexts.Context
    now: datetime.datetime = NOW
    #: whether a job may go, by row
    may_go: dict[int, bool] = dataclasses.field(default_factory=dict)
    #: contents of the run folders of those that stay, by file
    contents: dict[Path, bytes] = dataclasses.field(default_factory=dict)
    #: metric values and events of those that stay, by row
    counts: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def add(
        self,
        name: str,
        *,
        goes: bool,
        days: float = 100.0,
        tasks: int | None = None,
        state: JobState = JobState.COMPLETED,
        spec: jobs.JobSpec | None = None,
        continues: jobs.Job | None = None,
        **fields: Any,
    ) -> list[jobs.Job]:
        """Add a job, or an array, that ended some days ago, with logs, checkpoints and metrics."""
        with self.context.store.reading() as work:
            token = run_folder.new_token(work.settings.installation_id())
        runs_dir = self.context.configuration.runs_dir
        links = {}
        if continues is not None:
            links = {"checkpoints": Path(continues.run_dir, "checkpoints").resolve()}
        folder = run_folder.create(runs_dir, name, token, {"script.sbatch": "#!/bin/bash\n"}, links)
        spec = spec or jobs.JobSpec(name=name, launch=jobs.Launch(command="true"))
        submission = jobs.Submission(
            token=token,
            cluster="lab",
            scheduler="slurm",
            name=name,
            script="#!/bin/bash\n",
            spec=specs.to_json(spec),
            run_dir=str(folder.path),
            provenance=json.dumps(_PROVENANCE),
            created_at=self.now - (days + 1) * DAY,
        )
        is_over = state in jobs.TERMINAL
        known = {
            "settled": is_over,
            "ended_at": self.now - days * DAY if is_over and "resend_at" not in fields else None,
            "continues": continues.row if continues else None,
            **fields,
        }
        with self.context.store.writing() as work:
            added = work.jobs.add_submission(
                submission,
                array_tasks=None if tasks is None else range(tasks),
                state=state,
                **known,
            )
            for job in added:
                path = folder.path / f"{job.row}.out"
                job_id = f"{1000 + added[0].row}" + (
                    "" if tasks is None else f"_{job.array_task_id}"
                )
                seen = {"stdout_path": str(path), "job_id": job_id}
                work.jobs.change(job.row, seen)
                work.attempts.put([(job.row, jobs.Attempt(number=0, state=state))])
                work.events.add_many([(job.row, self.context.event("note", "x"))] * 3)
                cursor = metrics.LogCursor(path=str(path), inode=7, device=7, offset_bytes=100)
                work.log_cursors.move(job.row, cursor, expect=None)
                lines = [
                    jobs.Metric(name="loss", value=n / 7, source="log:x", path=str(path), line=n)
                    for n in range(1, 31)
                ]
                work.metrics.add(job.row, [metrics.ParsedLine.of(line) for line in lines])
                path.write_text(f"{name}\n")
                if continues is None:
                    self._add_checkpoints(run_folder.RunFolder(folder.path), job)
            stored = list(work.jobs.by_row([job.row for job in added]).values())
        for job in stored:
            self.may_go[job.row] = goes
        return stored

    def _add_checkpoints(self, folder: run_folder.RunFolder, job: jobs.Job) -> None:
        checkpoints = folder.checkpoints(job.array_task_id)
        checkpoints.mkdir()
        for step in STEPS:
            (checkpoints / f"checkpoint-{step}.pt").write_text(f"{job.row} {step}")
            os.utime(checkpoints / f"checkpoint-{step}.pt", (step, step))
        (checkpoints / "best.pt").write_text("best")

    def add_sweep(self, name: str, points: Sequence[jobs.Job | None]) -> int:
        """Add a sweep of three points, and give them their jobs; return its row."""
        document, problems = documents.parse(_SWEEP.replace("point", name), "s.toml")
        sweep = sweeps.expand(document, config.Profile(name="lab"), problems)
        with self.context.store.writing() as work:
            stored = work.sweeps.add(
                sweep,
                profile="lab",
                cluster="lab",
                scheduler="slurm",
                source="s.toml",
                folder="/home/a",
                created_at=self.now - 200 * DAY,
            )
            given = [
                (point, job)
                for point, job in zip(work.sweeps.points(stored.row), points, strict=True)
                if job is not None
            ]
            chosen = sweeps.points_of([point for point, _ in given])
            assert work.sweeps.assign_jobs(stored.row, chosen, [job.row for _, job in given])
        return stored.row

    def add_graph(self, name: str, nodes: Sequence[tuple[int | None, int | None]]) -> int:
        """Add a graph whose nodes have these jobs or sweeps, None and None: none yet."""
        made = [
            graph_records.StoredNode(name=f"n{place}", kind="job", after=(), source="n.toml")
            for place in range(len(nodes))
        ]
        with self.context.store.writing() as work:
            graph = work.graphs.add(
                [(node, {"job": {"name": node.name}}) for node in made],
                environment={},
                name=name,
                source="g.toml",
                folder="/home/a",
                profile="lab",
                scheduler="slurm",
                cluster="lab",
                created_at=self.now - 200 * DAY,
                argv=("orchestrator",),
            )
            for node, (job_row, sweep_row) in zip(made, nodes, strict=True):
                if job_row is not None or sweep_row is not None:
                    work.graphs.bind(graph.row, node.name, job_row=job_row, sweep_row=sweep_row)
        return graph.row

    def add_schedule(self, name: str, fired: Sequence[jobs.Job], **fields: Any) -> None:
        """Add a schedule whose triggers, oldest first, submitted these jobs; all have a verdict."""
        usual: dict[str, Any] = {
            "name": name,
            "cron": "@daily",
            "tz": "UTC",
            "source": "x.toml",
            "folder": "/home/a",
            "profile": "lab",
            "cluster": "lab",
            "scheduler": "slurm",
            "state": "active",
            "kind": "job",
            "catchup": "latest",
            "overlap": "allow",
            "grace_seconds": 60,
            "jitter_seconds": 0,
            "created_at": self.now - 300 * DAY,
            "decided_until": self.now,
        }
        payload = schedule_records.Payload(spec={"name": "x"}, environment={}, argv=())
        with self.context.store.writing() as work:
            schedule = work.schedules.add(payload, **{**usual, **fields})
            for number, job in enumerate(fired):
                at = self.now - (len(fired) - number) * DAY
                trigger = work.schedules.add_trigger_by_hand(schedule, at)
                assert work.schedules.change_trigger(trigger, state="fired", job_row=job.row)
                trigger = dataclasses.replace(trigger, state="fired")
                verdict = {"verdict": "ok", "verdict_at": at, "verdict_detail": {}}
                assert work.schedules.change_trigger(trigger, **verdict)

    def depend(self, job: jobs.Job, **on: int) -> None:
        with self.context.store.writing() as work:
            work.dependencies.add(job.row, [dependency.Dependency(kind="afterok", **on)])

    def remember(self) -> None:
        """Remember what must not change of the jobs that stay."""
        with self.context.store.reading() as work:
            for row, goes in self.may_go.items():
                job = work.jobs.get(row)
                if job is not None and not goes:
                    self.counts[row] = self._counted(work, row)
                    self.contents |= _contents(Path(job.run_dir))

    def damage(self) -> list[str]:
        """Return what is lost of the jobs that must stay, and what contradicts in the database."""
        lost = []
        with self.context.store.reading() as work:
            for row, counts in self.counts.items():
                if work.jobs.get(row) is None:
                    lost.append(f"row @{row}")
                elif (now := self._counted(work, row)) != counts:
                    lost.append(f"metrics and events of @{row}: {now} instead of {counts}")
        lost += [
            f"file {path}" for path, content in self.contents.items() if not _has(path, content)
        ]
        return lost + [str(finding) for finding in self.context.store.check()]

    def remaining(self) -> set[int]:
        with self.context.store.reading() as work:
            return {*work.jobs.find_rows(jobs.JobQuery(limit=None))}

    def _counted(self, work: Any, row: int) -> tuple[int, int]:
        query = metrics.MetricQuery(job_rows=[row])
        return len(work.metrics.by_job(query).get(row, [])), len(work.events.of_job(row))


def _contents(folder: Path) -> dict[Path, bytes]:
    # Through the links of continuation jobs.
    paths = [
        Path(top, name) for top, _, names in os.walk(folder, followlinks=True) for name in names
    ]
    return {path: path.read_bytes() for path in paths}


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def full(context: contexts.Context, copies: int = 1) -> World:
    """Return a world with each reason to stay, and with jobs that may go in between."""
    world = World(context, context.clock.now())
    for number in range(copies):
        add_all(world, number)
    world.remember()
    return world


def add_all(world: World, number: int) -> None:
    """Add jobs with each reason to stay, and jobs that may go. number: makes names different."""
    add, failed = world.add, JobState.FAILED
    # Alone, arrays, chains.
    add("plain", goes=True)
    add("array", goes=True, tasks=3)
    (first,) = add("chain", goes=True, state=JobState.TIMEOUT)
    (second,) = add("chain", goes=True, state=JobState.TIMEOUT, continues=first)
    add("chain", goes=True, continues=second)
    (first,) = add("live-chain", goes=False, state=JobState.TIMEOUT)
    add("live-chain", goes=False, state=JobState.RUNNING, continues=first)
    add("mixed", goes=False, tasks=2, settled=False)
    # Not over.
    add("live", goes=False, state=JobState.RUNNING)
    add("lost", goes=False, state=JobState.LOST)
    add("young", goes=False, days=0.01)
    add("deferred", goes=False, state=JobState.NOT_SUBMITTED, resend_at=world.now + DAY)
    add("retry", goes=False, state=failed, recovers=True)
    (planned,) = add("planned", goes=False, state=failed, recovers=True)
    with world.context.store.writing() as work:
        decision = Decision(
            action=Action.REQUEUE, cause="node_fail", rule="x", detail="x", due_at=world.now + DAY
        )
        work.recovery.add(planned, decision, world.now)
    # Dependencies.
    (needed,) = add("needed", goes=False)
    (dependent,) = add("dependent", goes=False, state=JobState.PENDING)
    world.depend(dependent, on_job=needed.row)
    (before,) = add("before", goes=True)
    (after,) = add("after", goes=True)
    world.depend(after, on_job=before.row)
    (named,) = add("named", goes=False)
    spec = jobs.JobSpec(
        name="reader",
        launch=jobs.Launch(command="true"),
        args={"resume": f"{named.run_dir}/checkpoints/best.pt"},
    )
    add("reader", goes=False, state=JobState.RUNNING, spec=spec)
    # Sweeps.
    done = [add("done", goes=True, sweep=f"done{number}")[0] for _ in range(3)]
    world.add_sweep(f"done{number}", done)
    open_jobs = [add("open", goes=False, sweep=f"open{number}")[0] for _ in range(2)]
    world.add_sweep(f"open{number}", [*open_jobs, None])
    measured = [add("measured", goes=False, sweep=f"measured{number}")[0] for _ in range(3)]
    sweep = world.add_sweep(f"measured{number}", measured)
    # Graphs.
    in_sweep = [add("in-graph", goes=True, sweep=f"in{number}")[0] for _ in range(3)]
    (node,) = add("node", goes=True)
    world.add_graph(
        "finished", [(node.row, None), (None, world.add_sweep(f"in{number}", in_sweep))]
    )
    (node,) = add("open-node", goes=False)
    world.add_graph("unfinished", [(node.row, None), (None, None)])
    # Baselines.
    (one,) = add("in-baseline", goes=False)
    (two,) = add("in-baseline", goes=False)
    (old,) = add("in-replaced-baseline", goes=True)
    with world.context.store.writing() as work:
        work.baselines.add(f"b{number}", f"jobs {old.job_id}", 0, _MEASUREMENTS, world.now)
        text = f"jobs {one.job_id}, @{two.row}"
        work.baselines.add(f"b{number}", text, 0, _MEASUREMENTS, world.now)
        text = f"sweep measured{number} (@{sweep})"
        work.baselines.add(f"s{number}", text, 0, _MEASUREMENTS, world.now)
    # Schedules: a check reads the last ten runs.
    old_runs = [add("nightly", goes=True)[0] for _ in range(2)]
    new_runs = [add("nightly", goes=False)[0] for _ in range(10)]
    world.add_schedule(f"nightly{number}", [*old_runs, *new_runs])
    compared = [add("compared", goes=True)[0] for _ in range(2)]
    world.add_schedule(f"compared{number}", compared, baseline=f"b{number}")
    removed = [add("removed", goes=True)[0] for _ in range(2)]
    world.add_schedule(f"removed{number}", removed, state="removed")
