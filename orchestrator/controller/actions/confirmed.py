"""Change jobs in Slurm and confirm it: refresh, run scontrol once for all, refresh again.

The exit status of scontrol proves nothing (22.05 to 26.05: `release` exits with 0 for a job that
is not held, `hold` for a running one), so an action is done when squeue shows it.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable, Sequence

from orchestrator import errors, jobs, prune
from orchestrator.controller.planning import agreement
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.jobs import naming

#: KillWait is 30 s by default, and COMPLETING may follow it.
CONFIRM_SECONDS = 60.0
#: how long to wait for another process that is asking Slurm
BUSY_SECONDS = 120.0
MAX_PAUSE_SECONDS = 15.0


class End(enum.Enum):
    DONE = enum.auto()
    #: there was nothing to do
    ALREADY = enum.auto()
    #: not possible for this job; Slurm was not asked
    IMPOSSIBLE = enum.auto()
    REFUSED = enum.auto()
    #: Slurm was asked, and the job changed in a way that makes it impossible
    TOO_LATE = enum.auto()
    #: Slurm was asked and does not show it yet
    UNSEEN = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    #: as it is now
    job: jobs.Job
    end: End
    #: reason of IMPOSSIBLE, REFUSED and TOO_LATE
    why: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Action:
    """A change of jobs."""

    name: contexts.Change
    #: why it is impossible for a job; "": it is possible
    objection: Callable[[jobs.Job], str]
    #: (the job before, the job now); for one and the same job: whether there is nothing to do
    is_done: Callable[[jobs.Job, jobs.Job], bool]
    #: (the job before, the job now) -> why it cannot be done any more; "": it may still be done
    too_late: Callable[[jobs.Job, jobs.Job], str] = lambda before, now: ""
    #: who acts, for the history
    source: str = "user"


def refreshed(context: contexts.Context, selected: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the jobs as Slurm has them now; raises SlurmError if it does not answer."""
    started = context.clock.now()
    while (fresh := refresh.refresh_one(context, floor_seconds=0)).busy:
        if (context.clock.now() - started).total_seconds() >= BUSY_SECONDS:
            raise errors.SlurmError(
                f"Another process has been asking Slurm for {BUSY_SECONDS:.0f} s. "
                "Nothing was changed; try again."
            )
        context.clock.sleep(1.0)
    if fresh.failing_since is not None:
        raise errors.SlurmError(f"{fresh.last_error} (nothing was changed)")
    return stored(context, selected)


def stored(context: contexts.Context, selected: Sequence[jobs.Job | int]) -> list[jobs.Job]:
    """Return jobs, or those of some rows, as they are in the database, in the same order."""
    rows = [job if isinstance(job, int) else job.row for job in selected]
    with context.store.reading() as work:
        by_row = work.jobs.by_row(rows)
    return [by_row[row] for row in rows if row in by_row]


def poll(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    is_unseen: Callable[[jobs.Job], bool],
    *,
    change: str,
    confirm_seconds: float,
) -> list[jobs.Job]:
    """Refresh at once and after 1, 2, 4 ... seconds, whatever the profile's floor.

    Ends when no job is unseen any more, or after `confirm_seconds`; returns the jobs as they are
    then. change: what is waited for: "the end of".
    """
    started = context.clock.now()
    pause_seconds = 1.0
    unseen = list(selected)
    while True:
        for group_context, _ in contexts.by_scheduler(context, unseen):
            refresh.refresh_one(group_context, floor_seconds=0)
        current = stored(context, selected)
        unseen = [job for job in current if is_unseen(job)]
        left_seconds = confirm_seconds - (context.clock.now() - started).total_seconds()
        if not unseen or left_seconds <= 0:
            return current
        if pause_seconds == 2.0:
            names, scheduler = naming.names_of(unseen), contexts.scheduler_name(unseen)
            context.reporter.info(f"Waiting until {scheduler} shows {change} {names} ...")
        is_local = all(job.scheduler == "local" for job in unseen)
        longest_seconds = refresh.LOCAL_FLOOR_SECONDS if is_local else MAX_PAUSE_SECONDS
        context.clock.sleep(min(pause_seconds, left_seconds, longest_seconds))
        pause_seconds = min(pause_seconds * 2, MAX_PAUSE_SECONDS)


def carry_out(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    action: Action,
    *,
    confirm_seconds: float = CONFIRM_SECONDS,
) -> list[Outcome]:
    """Carry the action out and wait until squeue shows it, at most `confirm_seconds`."""

    def current() -> list[jobs.Job]:
        groups = contexts.by_scheduler(context, selected)
        by_row = {job.row: job for each, group in groups for job in refreshed(each, group)}
        return [by_row[job.row] for job in selected]

    agreement.on_change(
        context,
        action.name.capitalize(),
        current,
        objection=lambda job: without_id(job) or action.objection(job),
        runs=action.name in ("release", "requeue"),
    )
    outcomes: dict[int, Outcome] = {}
    for group_context, group in contexts.by_scheduler(context, selected):
        outcomes |= _carry_out(group_context, group, action, confirm_seconds)
    return [outcomes[job.row] for job in selected if job.row in outcomes]


def _carry_out(
    context: contexts.Context, selected: Sequence[jobs.Job], action: Action, confirm_seconds: float
) -> dict[int, Outcome]:
    started = context.clock.now()
    current = refreshed(context, selected)
    cluster = clusters.facts(context).cluster
    outcomes: dict[int, Outcome] = {}
    for job in current:
        why = (
            without_id(job)
            or clusters.elsewhere(job, cluster)
            or not_shown(job, started)
            or action.objection(job)
        )
        if why or action.is_done(job, job):
            end = End.IMPOSSIBLE if why else End.ALREADY
            outcomes[job.row] = Outcome(job=job, end=end, why=why)
    possible = [job for job in current if job.row not in outcomes]
    if possible:
        outcomes |= {outcome.job.row: outcome for outcome in ask(context, possible, action)}
    asked = {job.row: job for job in possible if job.row not in outcomes}
    if not asked:
        return outcomes

    def outcome_of(now: jobs.Job) -> Outcome:
        if action.is_done(asked[now.row], now):
            return Outcome(job=now, end=End.DONE)
        why = action.too_late(asked[now.row], now)
        return Outcome(job=now, end=End.TOO_LATE if why else End.UNSEEN, why=why)

    last = poll(
        context,
        list(asked.values()),
        lambda job: outcome_of(job).end is End.UNSEEN,
        change="it for",
        confirm_seconds=confirm_seconds,
    )
    return outcomes | {job.row: outcome_of(job) for job in last}


def without_id(job: jobs.Job) -> str:
    """Return why Slurm cannot be asked for a change of a job that has no job ID."""
    if job.state is jobs.JobState.NOT_SUBMITTED:
        return f"@{job.row} was never submitted; `orchestrator resubmit @{job.row}` submits it"
    if job.job_id is None:
        return (
            f"@{job.row} has no job ID yet ({job.state}). `orchestrator status @{job.row}` looks "
            "for it in Slurm; repeat the command afterwards"
        )
    return ""


def not_shown(job: jobs.Job, since: datetime.datetime) -> str:
    """Return the objection to a live job that squeue does not show: another job may have its ID."""
    is_shown = (
        job.missing_since is None and job.observed_at is not None and job.observed_at >= since
    )
    if job.state in jobs.TERMINAL or is_shown:
        return ""
    return f"Slurm does not show {job.job_id} now; `orchestrator status` looks for it"


def ask(context: contexts.Context, selected: Sequence[jobs.Job], action: Action) -> list[Outcome]:
    """Store that Slurm is asked, ask it, and return the refusals.

    A job whose run folder is being pruned is refused: prune does not touch a job once its request
    is stored.
    """
    command = action.name if context.is_local else f"scontrol {action.name}"

    def store(details: Sequence[tuple[jobs.Job, str]]) -> dict[int, prune.Mark]:
        with context.store.writing() as work:
            marks = work.prune.marks([job.row for job, _ in details])
            work.events.add_many(
                (job.row, context.event("ask", text, source=action.source, attempt=job.attempt))
                for job, text in details
            )
            return marks

    marks = store([(job, f"{command} {prune.REQUESTED}") for job in selected])
    pruned = {
        row: f"its run folder was pruned on {mark.at.astimezone():%Y-%m-%d}"
        for row, mark in marks.items()
        if mark.detail in (prune.FOLDER, prune.ROWS)
    }
    gone = [job for job in selected if job.row in pruned and job.ended]
    selected = [job for job in selected if job not in gone]
    # Otherwise a job that another controller has requeued meanwhile would be requeued again.
    context.guard.confirm_lease()
    job_ids = [job.job_id for job in selected if job.job_id]
    reasons = context.scheduler.change(action.name, job_ids) if job_ids else {}
    refused = [(job, reasons[job.job_id or ""]) for job in selected if job.job_id in reasons]
    refused += [(job, pruned[job.row]) for job in gone]
    if refused:
        store([(job, f"{command} was refused: {why}") for job, why in refused])
    return [Outcome(job=job, end=End.REFUSED, why=why) for job, why in refused]
