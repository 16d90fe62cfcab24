"""The attempts of a job, and of the jobs that it continues or that continue it, over time."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.rows import job_rows
from orchestrator.web import rendering

#: Of the drawing, in its own units.
WIDTH, LANE_HEIGHT = 1000, 16
_MIN_WIDTH = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lane:
    """One attempt."""

    job: jobs.Job
    name: str
    attempt: int
    state: jobs.JobState
    submitted_at: datetime.datetime | None
    started_at: datetime.datetime | None
    ended_at: datetime.datetime | None
    exit: str | None
    node_list: str | None
    reason: str | None
    #: what was decided after its end
    then: str | None
    #: when that happens, if it is planned
    due_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """A lane as drawn: the time in the queue, then the time that it ran."""

    y: int
    wait_x: float
    wait_width: float
    x: float
    width: float
    kind: str
    title: str


def lanes(context: contexts.Context, job: jobs.Job, now: datetime.datetime) -> list[Lane]:
    """Return all attempts of the chain of a job, oldest first."""
    decided = {
        (link.job.row, link.attempt): link.decision for link in chains.chain_of(context, job)
    }
    with context.store.reading() as work:
        rows = work.recovery.chain(job.row)
        members = work.jobs.by_row(rows)
        attempts = work.attempts.of_jobs(rows)
    result = []
    for row in rows:
        member = members[row]
        stored = {attempt.number: attempt for attempt in attempts.get(row, ())}
        for number in sorted({*stored, member.attempt}):
            # The newest attempt is the job itself.
            run: jobs.Job | jobs.Attempt = member if number == member.attempt else stored[number]
            decision = decided.get((row, number))
            result.append(
                Lane(
                    job=member,
                    name=naming.name_of(member),
                    attempt=number,
                    state=run.state,
                    submitted_at=run.submitted_at or member.created_at,
                    started_at=run.started_at,
                    ended_at=run.ended_at,
                    exit=job_rows.exit_text(run.exit_code, run.exit_signal),
                    node_list=run.node_list,
                    reason=None if run.reason == "None" else run.reason,
                    then=decision.detail if decision else None,
                    due_at=decision.due_at if decision and decision.state == "planned" else None,
                )
            )
    return result


def drawn(shown: Sequence[Lane], now: datetime.datetime) -> dict[str, object]:
    """Return bars, and the times at both ends of the drawing."""
    spans = []
    for lane in shown:
        is_over = lane.state in jobs.TERMINAL
        end = lane.ended_at or (lane.started_at if is_over else None) or now
        start = lane.started_at or end
        begin = min(lane.submitted_at or start, start)
        spans.append((begin, start, max(end, start)))
    first = min(begin for begin, _, _ in spans)
    last = max(end for _, _, end in spans)
    seconds = max((last - first).total_seconds(), 1.0)

    def x_of(at: datetime.datetime) -> float:
        return round(WIDTH * (at - first).total_seconds() / seconds, 1)

    bars = []
    for number, (lane, (begin, start, end)) in enumerate(zip(shown, spans, strict=True)):
        x = min(x_of(start), WIDTH - _MIN_WIDTH)
        has_run = lane.started_at is not None
        bars.append(
            Bar(
                y=number * LANE_HEIGHT + 3,
                wait_x=x_of(begin),
                wait_width=max(0.0, x_of(start) - x_of(begin)),
                x=x,
                width=max(_MIN_WIDTH, x_of(end) - x) if has_run else 0.0,
                kind=rendering.state_kind(lane.state),
                title=f"{lane.name}, attempt {lane.attempt}: {lane.state}",
            )
        )
    return {
        "bars": bars,
        "width": WIDTH,
        "height": len(bars) * LANE_HEIGHT + 4,
        "lane_height": LANE_HEIGHT,
        "first": first,
        "last": last,
    }
