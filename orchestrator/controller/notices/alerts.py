"""Jobs that run are looked at for alerts: their files, within bounds, and nothing of Slurm."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, files, jobs, metrics, specs
from orchestrator.clocks import deadlines
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import alerts
from orchestrator.tracking import run_folder

#: A look at running jobs costs reading; it is taken by one process in so long ...
EVERY_SECONDS = 60.0
#: ... at so many jobs, the others follow the next times ...
AT_ONCE = 50
#: ... and reads for so long: what is left of a log is read the next times too.
READING_SECONDS = 1.0
#: of the setting that holds how far it came
KEY = "watched"


def watch(context: contexts.Context, *, insist: bool = False) -> int:
    """Look at jobs that run, if it is time; returns of how many the alerts changed.

    `insist`: it is time. What cannot be read or stored is said, and no error.
    """
    try:
        some = _turn(context, insist=insist)
        return _look(context, some) if some else 0
    except errors.OrchestratorError as exc:
        context.reporter.warn(f"Alerts were not looked for: {exc}")
        return 0


def _turn(context: contexts.Context, *, insist: bool) -> list[jobs.Job]:
    """Take the right to look; return the jobs whose turn it is, newest first."""
    now = context.clock.now()
    with context.store.reading() as work:
        known = work.settings.get(KEY)
        if not insist and _is_fresh(known, now):
            return []
        last = json.loads(known)["row"] if known else None
        some = work.jobs.find(_running(last))
        if len(some) < AT_ONCE and last is not None:
            some += work.jobs.find(_running(None))
    some = list({job.row: job for job in some}.values())[:AT_ONCE]
    if not some and known is None:
        return []
    with context.store.writing() as work:
        if work.settings.get(KEY) != known:
            # Another process was faster.
            return []
        row = some[-1].row if len(some) == AT_ONCE else None
        work.settings.put(KEY, json.dumps({"at": now.isoformat(), "row": row}))
    return [job for job in some if not clusters.other_machine(job)]


def _is_fresh(known: str | None, now: datetime.datetime) -> bool:
    if known is None:
        return False
    at = looked_at(known)
    # A moment that is still to come was written by a clock that is early.
    return 0 <= (now - at).total_seconds() < EVERY_SECONDS


def looked_at(known: str) -> datetime.datetime:
    """Return when running jobs were last looked at, of the setting."""
    return datetime.datetime.fromisoformat(json.loads(known)["at"])


def _running(below: int | None) -> jobs.JobQuery:
    return jobs.JobQuery(live=True, states=(jobs.JobState.RUNNING,), below=below, limit=AT_ONCE)


def _look(context: contexts.Context, some: Sequence[jobs.Job]) -> int:
    # What cannot be read is told to who asks for the job's numbers.
    quiet = context.with_reporter(context.reporter.silent())
    with contextlib.suppress(errors.OrchestratorError):
        ingest.ingest(quiet, some, deadline=deadlines.NEVER.within(READING_SECONDS))
    wanted = metrics.MetricQuery(
        job_rows=tuple(job.row for job in some),
        names=(*alerts.LOSSES, *alerts.THROUGHPUTS),
        prefer_jsonl=True,
        last=alerts.READINGS,
    )
    with context.store.reading() as work:
        stored = work.metrics.by_job(wanted)
        texts = work.jobs.specs({job.token for job in some})
    rules = {token: _rules(text, context.profile.alerts) for token, text in texts.items()}
    now = context.clock.now()
    changes = []
    for job in some:
        seen = _seen(job, stored.get(job.row, []), rules[job.token], now)
        found, events = alerts.judge(job, rules[job.token], seen, now=now)
        if events:
            changes.append((job, found, events))
    if not changes:
        return 0
    with context.store.writing() as work:
        stored_rows = work.jobs.change_many(
            [(job.row, {"alerts": found}, job.version) for job, found, _ in changes]
        )
        work.events.add_many(
            (job.row, event)
            for job, _, events in changes
            if job.row in stored_rows
            for event in events
        )
    return len(stored_rows)


def _rules(spec: str, default: jobs.Alerts) -> alerts.Rules:
    try:
        return alerts.Rules.of(specs.from_json(spec).alerts, default)
    except errors.SpecError:
        # Another version wrote it: the other jobs are looked at all the same.
        return alerts.Rules.of(default)


def _seen(
    job: jobs.Job,
    found: Sequence[jobs.Metric],
    rules: alerts.Rules,
    now: datetime.datetime,
) -> alerts.Seen:
    written_at = _written_at(job)
    if written_at is None:
        return alerts.Seen(written_at=None, silent_seconds=0.0, metrics=found)
    silent = (now - written_at).total_seconds()
    limit = rules.stalled_minutes * 60
    if silent < 0 or (limit and silent >= limit):
        # The files' stamps are another host's, whose clock may differ: it is asked.
        there = _clock_of(Path(job.run_dir)) or now
        silent = (there - written_at).total_seconds()
    return alerts.Seen(written_at=written_at, silent_seconds=silent, metrics=found)


def _written_at(job: jobs.Job) -> datetime.datetime | None:
    folder = run_folder.RunFolder(Path(job.run_dir))
    task = job.array_task_id
    paths = [
        job.stdout_path,
        job.stderr_path,
        folder.metrics_file(task or 0, array=task is not None),
    ]
    stamps = []
    for path in paths:
        with contextlib.suppress(OSError):
            if path is not None:
                stamps.append(os.stat(path).st_mtime)
    if not stamps:
        return None
    # The log of an attempt that has said nothing yet is as old as the attempt before.
    written_at = files.time_of(max(stamps))
    return max(written_at, job.started_at or written_at)


def _clock_of(folder: Path) -> datetime.datetime | None:
    """Return the time of the file system that a folder is on."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\n")
        file.flush()
        return files.time_of(os.fstat(file.fileno()).st_mtime)
    return None
