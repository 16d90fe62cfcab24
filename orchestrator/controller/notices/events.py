"""Find what people are notified of: ends of jobs, alerts and planned times, each exactly once.

A cursor stores how much of the history of all jobs has been read. An end is reported when the whole
array or sweep has ended, Slurm has reported everything about it, and no retry follows.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from db import unit_of_work
from orchestrator import jobs, recovery
from orchestrator.controller.recovery import chains
from orchestrator.controller.sweeps import queries
from orchestrator.jobs import naming
from orchestrator.notices import texts
from orchestrator.notices.records import Notice
from orchestrator.schedules.records import Trigger
from orchestrator.sweeps.records import StoredSweep

EVENTS_PER_PASS = 5000
_TRIGGERS_PER_PASS = 2000
#: Older planned times are not reported.
_TRIGGERS_WITHIN = datetime.timedelta(days=2)
#: Triggers are read again until one is so much newer: another process with another clock may store
#: an older one later.
_COMMITTED_WITHIN = datetime.timedelta(hours=1)
#: An end is reported without its cause after this time; reading the logs may take long.
_CAUSE_WITHIN = datetime.timedelta(minutes=10)
#: A rejection by Slurm within this time was shown to the person who submitted the job.
_SHOWN_WITHIN = datetime.timedelta(minutes=5)

#: Row of the event, row of its job, event.
_Event: TypeAlias = tuple[int, int, jobs.JobEvent]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far the history has been read."""

    #: job_events.id
    event: int
    #: nothing earlier is reported
    since: datetime.datetime
    #: row -> end of jobs that have ended and are not reported yet
    open: Mapping[int, datetime.datetime] = dataclasses.field(default_factory=dict)
    #: keys of notices about triggers that are read again
    seen: frozenset[str] = frozenset()

    def to_json(self) -> str:
        ends = {str(row): at.isoformat() for row, at in self.open.items()}
        since = self.since.isoformat()
        fields = {"event": self.event, "since": since, "open": ends, "seen": sorted(self.seen)}
        return json.dumps(fields)

    @classmethod
    def of_json(cls, text: str) -> Cursor:
        fields = json.loads(text)
        time = datetime.datetime.fromisoformat
        return cls(
            event=fields["event"],
            since=time(fields["since"]),
            open={int(row): time(at) for row, at in fields["open"].items()},
            seen=frozenset(fields.get("seen", ())),
        )


def find(
    work: unit_of_work.UnitOfWork, cursor: Cursor, now: datetime.datetime
) -> tuple[list[Notice], Cursor]:
    """Return the new notices and the cursor for the next pass."""
    events = work.events.after(cursor.event, EVENTS_PER_PASS)
    ended = dict(cursor.open)
    ended |= {job_row: event.at for _, job_row, event in events if _may_be_end(event)}
    ends, still_open = _ends(work, ended, now)
    since = max(cursor.since, now - _TRIGGERS_WITHIN)
    triggers = work.schedules.recent_triggers(since, _TRIGGERS_PER_PASS)
    about_triggers = list(_about_triggers(work, triggers, since))
    unseen = [notice for notice in about_triggers if notice.key not in cursor.seen]
    notices = [*_alerts(work, events), *ends, *unseen]
    known = work.notices.known_keys([notice.key for notice in notices])
    times = [at for trigger, _ in triggers for at in (trigger.decided_at, trigger.verdict_at) if at]
    new_cursor = dataclasses.replace(
        cursor,
        event=events[-1][0] if events else cursor.event,
        since=max([cursor.since, *(at - _COMMITTED_WITHIN for at in times)]),
        open=still_open,
        seen=frozenset(notice.key for notice in about_triggers),
    )
    return [notice for notice in notices if notice.key not in known], new_cursor


def _may_be_end(event: jobs.JobEvent) -> bool:
    # A deferred job that is given up does not change its state.
    given_up = event.kind == "submit" and event.source == "controller"
    return given_up or event.state in jobs.TERMINAL


def _alerts(work: unit_of_work.UnitOfWork, events: Sequence[_Event]) -> Iterator[Notice]:
    kinds = {"never": texts.never_starts, "alert": texts.alert}
    alerts = [each for each in events if each[2].kind in kinds]
    by_row = work.jobs.by_row([job_row for _, job_row, _ in alerts])
    for row, job_row, event in alerts:
        if not by_row[job_row].ended:
            yield kinds[event.kind](row, by_row[job_row], event.detail)


def _ends(
    work: unit_of_work.UnitOfWork, ended: Mapping[int, datetime.datetime], now: datetime.datetime
) -> tuple[list[Notice], dict[int, datetime.datetime]]:
    """Return notices about ends, and the ended jobs that cannot be reported yet."""
    by_row = work.jobs.by_row(list(ended))
    if not by_row:
        return [], {}
    sweep_rows = work.notices.sweeps_of_jobs(list(by_row))
    without_sweep = [job for row, job in by_row.items() if row not in sweep_rows]
    groups: list[tuple[StoredSweep | None, list[jobs.Job]]] = [
        (None, group) for group in _jobs_and_arrays(work, without_sweep)
    ]
    points = work.sweeps.groups(set(sweep_rows.values()))
    for row in sorted(set(sweep_rows.values())):
        sweep = work.sweeps.get(row)
        assert sweep is not None, "sweeps are never deleted"
        if not queries.unfinished(sweep, points.get(row, [])):
            groups.append((sweep, work.sweeps.jobs(row)))
    notices: list[Notice] = []
    still_open: dict[int, datetime.datetime] = {}
    for of_sweep, group in groups:
        ends = {job.row: ended[job.row] for job in group if job.row in ended}
        # Without `ends`, the chain has been reported already.
        if not ends or not all(job.ended for job in group):
            continue
        failed = [job for job in group if texts.is_failure(job)]
        attempts = {job.row: job.attempt for job in failed}
        retries = {
            decided.state
            for decided in work.recovery.of_jobs(list(attempts))
            if decided.attempt == attempts[decided.job_row]
            and decided.action is not recovery.Action.NONE
        }
        # About jobs that may recover there is no decision yet.
        is_undecided = "planned" in retries or any(job.recovers for job in failed)
        is_recent = datetime.timedelta(0) <= now - max(ends.values()) < _CAUSE_WITHIN
        is_explained = all(job.cause for job in failed) or not is_recent
        if not all(job.settled for job in group) or not is_explained or is_undecided:
            still_open |= ends
        elif "done" in retries:
            continue
        elif of_sweep is not None:
            count = sum(each.points for each in points.get(of_sweep.row, []))
            notices.append(texts.ended_sweep(of_sweep.row, of_sweep.name, count, group))
        elif not _was_shown(work, group, ends):
            first = group[0]
            cause = "" if group[1:] else work.events.cause(first.row, first.attempt)
            notices.append(texts.ended_jobs(group, cause))
    return notices, still_open


def _was_shown(
    work: unit_of_work.UnitOfWork, group: Sequence[jobs.Job], ends: Mapping[int, datetime.datetime]
) -> bool:
    """Return whether a person saw that Slurm rejected the job; the controller submits others."""
    return all(
        job.state is jobs.JobState.NOT_SUBMITTED
        and job.continues is None
        and ends.get(job.row, job.created_at) - job.created_at < _SHOWN_WITHIN
        for job in group
    ) and not work.schedules.submitted_any([job.row for job in group])


def _about_triggers(
    work: unit_of_work.UnitOfWork,
    triggers: Sequence[tuple[Trigger, str]],
    since: datetime.datetime,
) -> Iterator[Notice]:
    judged = [trigger.job_row for trigger, _ in triggers if trigger.verdict and trigger.job_row]
    by_row = work.jobs.by_row(judged)
    for trigger, schedule in triggers:
        # Paused, removed and overlapping triggers are skipped on purpose.
        is_missed = (trigger.reason or "").startswith("missed") and trigger.state == "skipped"
        if (is_missed or trigger.state == "failed") and trigger.decided_at >= since:
            yield texts.missed_time(trigger, schedule)
        if trigger.verdict and trigger.verdict_at and trigger.verdict_at >= since:
            yield texts.verdict(trigger, schedule, by_row.get(trigger.job_row or 0))


def _jobs_and_arrays(
    work: unit_of_work.UnitOfWork, selected: Sequence[jobs.Job]
) -> list[list[jobs.Job]]:
    """Return the job or all array tasks of each submission; of each chain the last job."""
    first_rows = {
        min(work.recovery.predecessors(job.row), default=job.row)
        if job.continues is not None
        else job.row
        for job in selected
    }
    tokens = {job.token for job in work.jobs.by_row(sorted(first_rows)).values()}
    submissions = naming.by_submission(work.jobs.of_submissions(tokens))
    return [chains.continued(work, group) for group in submissions]
