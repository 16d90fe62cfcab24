"""What is new and to be told: ends, alerts, planned times; each once, however often it is looked.

A cursor on the history of all jobs says what was looked at. An end is told when it is the end of
the whole, array or sweep, when Slurm has said all of it, and when no recovery rule goes on from it.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from db import unit_of_work
from orchestrator import jobs, notices, schedules
from orchestrator.controller.recovery import chains
from orchestrator.controller.sweeps import queries

#: Events of one pass; the rest follow with the next.
EVENTS_AT_ONCE = 5000
#: What is older is no news any more.
_FIRINGS_WITHIN = datetime.timedelta(days=2)
_FIRINGS_AT_ONCE = 2000
#: Firings are looked at anew until one is so much newer: another process, with another clock, may
#: store an older one behind it.
_COMMITTED_WITHIN = datetime.timedelta(hours=1)
#: A cause is waited for this long, an hour's log may have to be read for it.
_CAUSE_WITHIN = datetime.timedelta(minutes=10)
#: Who submitted by hand has seen by then that Slurm refused it.
_SEEN_BY_HAND = datetime.timedelta(minutes=5)
_ALERTS = ("stalled", "slow", "nan_loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far the history has been looked at."""

    #: job_events.id
    event: int
    #: nothing from before is told
    since: datetime.datetime
    #: jobs that ended and are not told yet, by row: when
    open: Mapping[int, datetime.datetime] = dataclasses.field(default_factory=dict)
    #: keys of what was looked at of firings that are looked at anew, whoever wanted to be told
    seen: frozenset[str] = frozenset()

    def to_json(self) -> str:
        waiting = {str(row): at.isoformat() for row, at in self.open.items()}
        since = self.since.isoformat()
        found = {"event": self.event, "since": since, "open": waiting, "seen": sorted(self.seen)}
        return json.dumps(found)

    @classmethod
    def of_json(cls, text: str) -> Cursor:
        found = json.loads(text)
        moment = datetime.datetime.fromisoformat
        return cls(
            event=found["event"],
            since=moment(found["since"]),
            open={int(row): moment(at) for row, at in found["open"].items()},
            seen=frozenset(found.get("seen", ())),
        )


def look(
    work: unit_of_work.UnitOfWork, cursor: Cursor, now: datetime.datetime
) -> tuple[list[notices.Notice], Cursor]:
    """Return what is to be told and was not, and where the next look begins."""
    events = work.notices.events_after(cursor.event, EVENTS_AT_ONCE)
    ended = dict(cursor.open)
    for event in events:
        if _may_end(event):
            ended[event.job_row] = event.at
    found = [*_alerts(work, events)]
    told, still_open = _ends(work, ended, now)
    since = max(cursor.since, now - _FIRINGS_WITHIN)
    firings = work.schedules.recent_triggers(since, _FIRINGS_AT_ONCE)
    planned = list(_firings(firings, since))
    found += [*told, *(one for one in planned if one.key not in cursor.seen)]
    known = work.notices.known_keys([one.key for one in found])
    after = dataclasses.replace(
        cursor,
        event=events[-1].row if events else cursor.event,
        since=_looked_until(firings, cursor.since),
        open=still_open,
        seen=frozenset(one.key for one in planned),
    )
    return [one for one in found if one.key not in known], after


def _may_end(event: notices.StoredEvent) -> bool:
    # What waits for room is given up without a change of its state (resend).
    given_up = event.kind == "submit" and event.source == "controller"
    return given_up or event.state in jobs.TERMINAL


def _alerts(
    work: unit_of_work.UnitOfWork, events: Iterable[notices.StoredEvent]
) -> Iterator[notices.Notice]:
    mine = [
        event
        for event in events
        if event.kind == "never"
        or (event.kind == "alert" and event.detail.partition(":")[0] in _ALERTS)
    ]
    some = _jobs(work, [event.job_row for event in mine])
    for event in mine:
        job = some[event.job_row]
        if job.ended:
            continue
        if event.kind == "never":
            yield notices.of_never(event.row, job, event.detail)
        else:
            yield notices.of_alert(event.row, job, event.detail)


def _ends(
    work: unit_of_work.UnitOfWork, ended: Mapping[int, datetime.datetime], now: datetime.datetime
) -> tuple[list[notices.Notice], dict[int, datetime.datetime]]:
    """Return the ends that can be told, and the jobs of those that can not yet."""
    some = _jobs(work, list(ended))
    if not some:
        return [], {}
    sweeps = work.notices.sweeps_of_jobs(list(some))
    apart = [job for row, job in some.items() if row not in sweeps]
    wholes: list[tuple[int | None, list[jobs.Job]]] = [(None, one) for one in _wholes(work, apart)]
    groups = work.sweeps.groups(set(sweeps.values()))
    for row in sorted(set(sweeps.values())):
        sweep = work.sweeps.get(row)
        assert sweep is not None, "sweeps are never deleted"
        if not queries.unfinished(sweep, groups.get(row, [])):
            wholes.append((row, work.sweeps.jobs(row)))
    told: list[notices.Notice] = []
    still_open: dict[int, datetime.datetime] = {}
    for sweep_row, found in wholes:
        if not all(job.ended for job in found):
            # Its last end will be news.
            continue
        mine = {job.row: ended[job.row] for job in found if job.row in ended}
        if not mine:
            # A link of a chain, whose last has been told.
            continue
        failed = [job for job in found if notices.is_failure(job)]
        states = work.notices.recovery_states([job.row for job in failed])
        verdict = [_decided(job, states) for job in failed]
        if not _all_said(found, failed, max(mine.values()), now) or "planned" in verdict:
            still_open |= mine
        elif sweep_row is not None and "done" not in verdict:
            told.append(_of_sweep(work, sweep_row, found))
        elif "done" not in verdict and not _seen_by_hand(work, found, mine):
            told.append(_of_jobs(work, found))
    return told, still_open


def _all_said(
    found: Sequence[jobs.Job],
    failed: Sequence[jobs.Job],
    at: datetime.datetime,
    now: datetime.datetime,
) -> bool:
    if not all(job.settled for job in found):
        return False
    return all(job.cause for job in failed) or not 0 <= (now - at).total_seconds() < (
        _CAUSE_WITHIN.total_seconds()
    )


def _decided(job: jobs.Job, states: Mapping[tuple[int, int], str]) -> str:
    """Return planned or done where a recovery rule goes on from this end, else ""."""
    if job.recovers:
        # What follows is not decided yet.
        return "planned"
    state = states.get((job.row, job.attempt), "")
    return "" if state == "refused" else state


def _seen_by_hand(
    work: unit_of_work.UnitOfWork,
    found: Sequence[jobs.Job],
    ended: Mapping[int, datetime.datetime],
) -> bool:
    """Tell whether somebody sat there when Slurm refused it; not what the controller sent."""
    return all(
        job.state is jobs.JobState.NOT_SUBMITTED
        and job.continues is None
        and ended.get(job.row, job.created_at) - job.created_at < _SEEN_BY_HAND
        for job in found
    ) and not work.schedules.submitted_any([job.row for job in found])


def _of_sweep(work: unit_of_work.UnitOfWork, row: int, found: Sequence[jobs.Job]) -> notices.Notice:
    sweep = work.sweeps.get(row)
    assert sweep is not None, "sweeps are never deleted"
    points = sum(group.points for group in work.sweeps.groups([row]).get(row, []))
    return notices.of_sweep(row, sweep.name, points, found)


def _of_jobs(work: unit_of_work.UnitOfWork, found: Sequence[jobs.Job]) -> notices.Notice:
    (first, *others) = found
    causes = {} if others else work.notices.causes({first.row: first.attempt})
    return notices.of_jobs(found, causes.get(first.row, ""))


def _looked_until(
    firings: Sequence[tuple[schedules.Trigger, str]], since: datetime.datetime
) -> datetime.datetime:
    moments = [at for one, _ in firings for at in (one.decided_at, one.verdict_at) if at]
    return max([since, *(at - _COMMITTED_WITHIN for at in moments)])


def _firings(
    firings: Sequence[tuple[schedules.Trigger, str]], since: datetime.datetime
) -> Iterator[notices.Notice]:
    for firing, name in firings:
        # What is paused, removed or overlaps is as somebody wished.
        is_missed = (firing.reason or "").startswith("missed") and firing.state == "skipped"
        if (is_missed or firing.state == "failed") and firing.decided_at >= since:
            yield notices.of_firing(
                firing.row,
                name,
                firing.planned_at,
                firing.state,
                firing.reason or "",
                schedule_row=firing.schedule_row,
            )
        sentence = firing.verdict_detail.get("sentence")
        if firing.verdict and firing.verdict_at and firing.verdict_at >= since:
            yield notices.of_verdict(
                firing.row,
                name,
                firing.planned_at,
                firing.verdict,
                [str(sentence)] if sentence else [],
                schedule_row=firing.schedule_row,
                sweep_row=firing.sweep_row,
                job_row=firing.job_row,
            )


def _jobs(work: unit_of_work.UnitOfWork, rows: Sequence[int]) -> dict[int, jobs.Job]:
    if not rows:
        return {}
    query = jobs.JobQuery(rows=tuple(rows), limit=None)
    return {job.row: job for job in work.jobs.find(query)}


def _wholes(work: unit_of_work.UnitOfWork, some: Sequence[jobs.Job]) -> list[list[jobs.Job]]:
    """Return what these jobs are of: a job, or the tasks of an array; of each chain the last."""
    first = {job.row: job.row for job in some}
    first |= {
        job.row: min(work.recovery.predecessors(job.row), default=job.row)
        for job in some
        if job.continues is not None
    }
    began = _jobs(work, sorted(set(first.values())))
    by_token: dict[str, list[jobs.Job]] = {}
    for job in work.jobs.of_submissions({job.token for job in began.values()}):
        by_token.setdefault(job.token, []).append(job)
    return [chains.continued(work, found) for found in by_token.values()]
