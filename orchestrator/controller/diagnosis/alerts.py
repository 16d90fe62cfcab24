"""Check running jobs for alerts: reads their files within bounds, and asks Slurm nothing."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, files, jobs, metrics, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import alerts
from orchestrator.slurm import fields
from orchestrator.specs import ranks

#: One process checks running jobs at this interval.
EVERY_SECONDS = 60.0
#: Number of jobs per check; more jobs are checked in turn.
JOBS_PER_CHECK = 50
#: Time for reading logs in one check.
READING_SECONDS = 1.0
#: Setting in the database that stores the time and the last job of the check.
KEY = "watched"


def check_running(context: contexts.Context) -> int:
    """Check running jobs if it is time; return how many jobs' alerts changed.

    Problems are reported and not raised.
    """
    try:
        running = _take_turn(context)
        return _check(context, running) if running else 0
    except errors.OrchestratorError as error:
        context.reporter.warn(f"Running jobs were not checked for alerts: {error}")
        return 0


def is_due(work: unit_of_work.UnitOfWork, now: datetime.datetime) -> bool:
    setting = work.settings.get(KEY)
    # A time in the future comes from a clock that is fast.
    return setting is None or not (0 <= (now - last_check(setting)).total_seconds() < EVERY_SECONDS)


def last_check(setting: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(json.loads(setting)["at"])


def _take_turn(context: contexts.Context) -> list[jobs.Job]:
    """Reserve this check for this process; return the jobs to check, newest first."""
    now = context.clock.now()
    with context.store.reading() as work:
        if not is_due(work, now):
            return []
        setting = work.settings.get(KEY)
        last_row = json.loads(setting)["row"] if setting else None
        running = work.jobs.find(_running(last_row))
        if len(running) < JOBS_PER_CHECK and last_row is not None:
            running += work.jobs.find(_running(None))
    running = list({job.row: job for job in running}.values())[:JOBS_PER_CHECK]
    if not running and setting is None:
        return []
    with context.store.writing() as work:
        if work.settings.get(KEY) != setting:
            # Another process took this turn.
            return []
        row = running[-1].row if len(running) == JOBS_PER_CHECK else None
        work.settings.put(KEY, json.dumps({"at": now.isoformat(), "row": row}))
    return [job for job in running if not clusters.other_machine(job)]


def _running(below: int | None) -> jobs.JobQuery:
    states = (jobs.JobState.RUNNING,)
    return jobs.JobQuery(live=True, states=states, below=below, limit=JOBS_PER_CHECK)


def _check(context: contexts.Context, running: Sequence[jobs.Job]) -> int:
    # `metrics` reports what cannot be read.
    quiet = context.with_reporter(context.reporter.silent())
    with contextlib.suppress(errors.OrchestratorError):
        ingest.ingest(quiet, running, deadline=deadlines.NEVER.within(READING_SECONDS))
    values: dict[int, list[jobs.Metric]] = {}
    with context.store.reading() as work:
        for names, last in alerts.VALUES.items():
            rows = tuple(job.row for job in running)
            query = metrics.MetricQuery(job_rows=rows, names=names, prefer_jsonl=True, last=last)
            for row, of_job in work.metrics.by_job(query).items():
                values.setdefault(row, []).extend(of_job)
        stored_specs = work.jobs.specs({job.token for job in running})
    known = {token: _spec(text) for token, text in stored_specs.items()}
    now = context.clock.now()
    changed: list[tuple[jobs.Job, Sequence[jobs.Alert], Sequence[jobs.JobEvent]]] = []
    for job in running:
        last_written, spec = written_at(job), known[job.token]
        own = (context.profile.alerts,) if spec is None else (spec.alerts, context.profile.alerts)
        rules = alerts.Rules.of(*own)
        current, events = alerts.judge(
            job,
            rules,
            values.get(job.row, []),
            written_at=last_written,
            silent_seconds=_silent_seconds(job, last_written, rules, now),
            now=now,
            hosts=_hosts(job, spec),
        )
        if events:
            changed.append((job, current, events))
    if not changed:
        return 0
    with context.store.writing() as work:
        stored = work.jobs.change_many(
            [(job.row, {"alerts": current}, job.version) for job, current, _ in changed]
        )
        work.events.add_many(
            (job.row, event) for job, _, events in changed if job.row in stored for event in events
        )
    return len(stored)


def _spec(text: str) -> jobs.JobSpec | None:
    try:
        return specs.from_json(text)
    except errors.SpecError:
        # Another version of this program wrote it.
        return None


def _hosts(job: jobs.Job, spec: jobs.JobSpec | None) -> list[str]:
    """Return the hosts in the order of their ranks; none: the order is not known."""
    if spec is None or job.node_list is None or "distribution" in spec.sbatch:
        return []
    hosts = fields.expand_hosts(job.node_list)
    by_name = sorted(hosts)
    if hosts == by_name:
        return hosts
    # Slurm numbers n2 before n10.
    launcher, is_static = ranks.choose(spec).launcher, spec.launch.rendezvous == "static"
    if launcher == "srun" or (launcher == "torchrun" and is_static):
        return hosts
    # The rendezvous c10d numbers them by their names.
    return by_name if launcher == "torchrun" else []


def _silent_seconds(
    job: jobs.Job,
    written_at: datetime.datetime | None,
    rules: alerts.Rules,
    now: datetime.datetime,
) -> float:
    if written_at is None:
        return 0.0
    seconds = (now - written_at).total_seconds()
    if 0 <= seconds < (rules.stalled_minutes * 60 or math.inf):
        return seconds
    # The clock of the file server, which sets the time stamps, may differ from ours.
    now = _file_system_time(Path(job.run_dir)) or now
    return (now - written_at).total_seconds()


def written_at(job: jobs.Job) -> datetime.datetime | None:
    """Return when the current attempt last wrote to its log or its file of metrics."""
    times = []
    for path in ingest.files_of(job):
        with contextlib.suppress(OSError):
            times.append(os.stat(path).st_mtime)
    if not times:
        return None
    # A log without output of this attempt is as old as the previous attempt.
    newest = files.time_of(max(times))
    return max(newest, job.started_at or newest)


def _file_system_time(folder: Path) -> datetime.datetime | None:
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\n")
        file.flush()
        return files.time_of(os.fstat(file.fileno()).st_mtime)
    return None
