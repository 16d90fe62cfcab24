"""The logs of jobs that have ended are read to their end, without anybody who asks for numbers.

Those of jobs that run are read where alerts are looked for (watching).
"""

from __future__ import annotations

import datetime
import json

from orchestrator import jobs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import clusters, contexts

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
    """Read what jobs that have settled since the last pass wrote last; return what was read.

    Jobs whose logs are not read to their end by then come again when the others had their turn.
    """
    deadline = context.deadline.within(READING_SECONDS)
    now = context.clock.now()
    stored = 0
    with context.store.reading() as work:
        known = work.settings.get(KEY)
    places = places_of(known) if known else [(now - _RECENT, 0)]
    # What follows is to be read; from the second on some was not read to its end.
    place, behind = places[0], places[1:]
    while not deadline.is_over:
        context.guard.check()
        with context.store.reading() as work:
            found = work.jobs.settled_after(place, now - _RECENT, AT_ONCE)
            query = jobs.JobQuery(rows=[row for _, row in found], limit=None)
            some = work.jobs.find(query) if found else []
        done = ingest.ingest(
            context,
            [job for job in some if not clusters.other_machine(job)],
            say=lambda told: None,
            deadline=deadline,
        )
        stored += done.stored
        if done.unread:
            behind = [min([place, *behind])]
        if len(found) < AT_ONCE:
            place, behind = behind[0] if behind else max(place, (now - _AGAIN, 0)), []
            break
        place = found[-1]
    if found or known is None:
        with context.store.writing() as work:
            work.settings.put(KEY, _text([place, *behind]))
    return [f"{stored} numbers read from the logs of jobs that ended"] if stored else []


def _text(places: list[tuple[datetime.datetime, int]]) -> str:
    return json.dumps([part for at, row in places for part in (at.isoformat(), row)])


def places_of(text: str) -> list[tuple[datetime.datetime, int]]:
    """Return times and rows of the setting: where to go on, and what was not read to its end."""
    parts = json.loads(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(datetime.datetime.fromisoformat(at), row) for at, row in pairs]
