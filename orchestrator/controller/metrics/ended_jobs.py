"""Reads the logs of ended jobs to their end, in each controller pass.

Logs of running jobs are read for alerts (notices).
"""

from __future__ import annotations

import datetime
import json

from orchestrator import jobs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import clusters, contexts

#: Jobs that are read before the progress is stored.
_BATCH = 20
#: Time per pass; later passes continue.
_PASS_SECONDS = 10.0
#: Another process may store a job's end some time after it: the last minutes are checked again.
_OVERLAP = datetime.timedelta(minutes=5)
#: After a long time without a controller, logs of older jobs are read when a command needs them.
_MAX_AGE = datetime.timedelta(days=2)
#: setting that stores the progress
KEY = "logs read"


def step(context: contexts.Context) -> list[str]:
    """Read the logs of jobs that have ended since the last pass; return messages.

    Logs that could not be read to their end come again after all others.
    """
    deadline = context.deadline.within(_PASS_SECONDS)
    now = context.clock.now()
    stored = 0
    with context.store.reading() as work:
        text = work.settings.get(KEY)
    # First where to continue, then the earliest job that was not read to its end.
    position, *unfinished = parse_progress(text) if text else [(now - _MAX_AGE, 0)]
    is_changed = text is None
    while not deadline.is_over:
        context.guard.check()
        with context.store.reading() as work:
            ended = work.jobs.settled_after(position, now - _MAX_AGE, _BATCH)
            query = jobs.JobQuery(rows=[row for _, row in ended], limit=None)
            batch = work.jobs.find(query) if ended else []
        is_changed |= bool(ended or unfinished)
        own = [job for job in batch if not clusters.other_machine(job)]
        result = ingest.ingest(context, own, report_notes=False, deadline=deadline)
        stored += result.stored
        if result.unread:
            unfinished = [min([position, *unfinished])]
        if len(ended) < _BATCH:
            position = unfinished[0] if unfinished else max(position, (now - _OVERLAP, 0))
            unfinished = []
            break
        position = ended[-1]
    if is_changed:
        with context.store.writing() as work:
            work.settings.put(KEY, _progress_text([position, *unfinished]))
    return [f"{stored} metrics read from the logs of ended jobs"] if stored else []


def _progress_text(progress: list[tuple[datetime.datetime, int]]) -> str:
    return json.dumps([part for at, row in progress for part in (at.isoformat(), row)])


def parse_progress(text: str) -> list[tuple[datetime.datetime, int]]:
    parts = json.loads(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(datetime.datetime.fromisoformat(at), row) for at, row in pairs]
