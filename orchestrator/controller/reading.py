"""The logs of jobs that have ended are read to their end, without anybody who asks for numbers.

Those of jobs that run are read where alerts are looked for (watching).
"""

from __future__ import annotations

import datetime
import json
import time

from orchestrator.controller import context as contexts
from orchestrator.controller import ingest, unit_of_work

#: So many jobs are read, then it is stored how far that was ...
AT_ONCE = 20
#: ... until a pass has read for so long; the others follow with the next ones.
READING_SECONDS = 10.0
#: Another process stores what it heard a while after it heard it: so much is looked at again.
_AGAIN = datetime.timedelta(minutes=5)
#: After weeks without a controller, who ended before is for those to read who ask.
_RECENT = datetime.timedelta(days=2)
#: of the setting that holds how far it came
KEY = "logs read"


def step(context: contexts.Context) -> list[str]:
    """Read what jobs that have settled since the last pass wrote last; return what was read."""
    until = time.monotonic() + READING_SECONDS
    now = context.clock()
    stored = 0
    with context.store.reading() as work:
        known = work.setting(KEY)
    place = place_of(known) if known else (now - _RECENT, 0)
    while time.monotonic() < until:
        context.proceed()
        with context.store.reading() as work:
            found = work.settled_after(place, now - _RECENT, AT_ONCE)
            query = unit_of_work.JobQuery(rows=[row for _, row in found], limit=None)
            some = work.jobs(query) if found else []
        stored += ingest.ingest(
            context,
            [job for job in some if not contexts.elsewhere(context, job)],
            say=lambda told: None,
            enough=lambda: time.monotonic() >= until,
        )
        if time.monotonic() >= until:
            # Where reading in each file goes on is stored; these are looked at once more.
            break
        is_last = len(found) < AT_ONCE
        place = max(place, (now - _AGAIN, 0)) if is_last else found[-1]
        if is_last:
            break
    if found or known is None:
        with context.store.writing() as work:
            work.put_setting(KEY, json.dumps([place[0].isoformat(), place[1]]))
    return [f"{stored} numbers read from the logs of jobs that ended"] if stored else []


def place_of(text: str) -> tuple[datetime.datetime, int]:
    """Return when the last job that was read was seen, and its row, of the setting."""
    at, row = json.loads(text)
    return datetime.datetime.fromisoformat(at), row
