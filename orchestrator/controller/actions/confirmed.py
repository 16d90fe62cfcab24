"""What hold, release and requeue have in common: look, ask Slurm once for all, look again.

scontrol's exit status proves nothing (measured on 22.05 to 26.05: `release` answers 0 for a job
that is not held, `hold` for one that runs), so each wish counts as done when squeue shows it.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable, Mapping, Sequence

from orchestrator import errors, jobs
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import clusters, contexts
from orchestrator.jobs import naming

#: KillWait is 30 s by default, and COMPLETING may follow it.
CONFIRM_SECONDS = 60.0
#: How long another process may be asking Slurm before we give up.
BUSY_SECONDS = 120.0


class End(enum.Enum):
    """What became of a wish."""

    #: Slurm shows it
    DONE = enum.auto()
    #: it was so before; nothing was asked
    ALREADY = enum.auto()
    #: it makes no sense for this job; nothing was asked
    IMPOSSIBLE = enum.auto()
    #: Slurm said no
    REFUSED = enum.auto()
    #: Slurm was asked, and the job went another way meanwhile: it cannot come any more
    TOO_LATE = enum.auto()
    #: Slurm was asked and does not show it
    UNSEEN = enum.auto()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the wish for one job."""

    #: as it is now
    job: jobs.Job
    end: End
    #: for IMPOSSIBLE, REFUSED and TOO_LATE: the sentence
    why: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """One verb: when it makes sense, how it is asked, and how it is seen to be done."""

    #: the command that is asked, for the history: "scontrol hold"
    command: str
    #: scheduler, job IDs -> why it refused, by job ID
    ask: Callable[[contexts.Scheduler, Sequence[str]], Mapping[str, str]]
    #: why it makes no sense for a job; "" when it does
    objection: Callable[[jobs.Job], str]
    #: whether it is so already
    already: Callable[[jobs.Job], bool]
    #: (the job before, the job now) -> whether it is done
    done: Callable[[jobs.Job, jobs.Job], bool]
    #: (the job before, the job now, not done) -> why it cannot come any more; "" while it can.
    #: scontrol itself refuses what has ended meanwhile
    hopeless: Callable[[jobs.Job, jobs.Job], str] = lambda before, now: ""
    #: who asks, for the history
    source: str = "user"


def look(context: contexts.Context, wanted: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the jobs as Slurm has them now; SlurmError when it does not answer."""
    begun = context.clock.now()
    while (fresh := refresh.refresh_one(context, floor_seconds=0)).busy:
        if (context.clock.now() - begun).total_seconds() >= BUSY_SECONDS:
            raise errors.SlurmError(
                f"another process has been asking Slurm for {BUSY_SECONDS:.0f} s; "
                "nothing was changed, try again"
            )
        context.clock.sleep(1.0)
    if fresh.failing_since is not None:
        raise errors.SlurmError(f"{fresh.error} (nothing was changed)")
    return stored(context, wanted)


def fulfil(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    wish: Wish,
    *,
    confirm_seconds: float = CONFIRM_SECONDS,
) -> list[Outcome]:
    """Ask Slurm and wait until squeue shows the wish done for all, or the time is up."""
    outcomes = [
        outcome
        for there, some in contexts.by_scheduler(context, wanted)
        for outcome in _fulfil(there, some, wish, confirm_seconds)
    ]
    order = {job.row: place for place, job in enumerate(wanted)}
    return sorted(outcomes, key=lambda outcome: order[outcome.job.row])


def _fulfil(
    context: contexts.Context, wanted: Sequence[jobs.Job], wish: Wish, confirm_seconds: float
) -> list[Outcome]:
    begun = context.clock.now()
    found = look(context, wanted)
    here = clusters.facts(context).cluster
    outcomes: dict[int, Outcome] = {}
    asked: dict[int, jobs.Job] = {}
    for job in found:
        why = (
            clusters.other_machine(job)
            or _unreachable(job, here)
            or unseen(job, begun)
            or wish.objection(job)
        )
        if why:
            outcomes[job.row] = Outcome(job=job, end=End.IMPOSSIBLE, why=why)
        elif wish.already(job):
            outcomes[job.row] = Outcome(job=job, end=End.ALREADY)
        else:
            asked[job.row] = job
    if asked:
        refused = ask(context, list(asked.values()), wish)
        outcomes.update({one.job.row: one for one in refused})
        left = [job for row, job in asked.items() if row not in outcomes]
        outcomes.update(
            {one.job.row: one for one in _confirm(context, left, wish, confirm_seconds)}
        )
    return [outcomes[job.row] for job in found]


def _unreachable(job: jobs.Job, here: str) -> str:
    if job.state is jobs.JobState.NOT_SUBMITTED:
        return f"@{job.row} was never submitted; `orchestrator resubmit @{job.row}` sends it"
    if job.job_id is None:
        return (
            f"@{job.row} has no job ID yet ({job.state}); `orchestrator status @{job.row}` "
            "finds out whether Slurm has it"
        )
    if job.cluster != here:
        return (
            f"{job.job_id} is of cluster {job.cluster} and this host of {here}; "
            "ask on a login host of that cluster"
        )
    return ""


def unseen(job: jobs.Job, begun: datetime.datetime) -> str:
    """Object where squeue does not show a live job now: its ID may be another job's by now."""
    if job.state in jobs.TERMINAL:
        return ""
    if job.missing_since is None and job.observed_at is not None and job.observed_at >= begun:
        return ""
    return f"Slurm does not show {job.job_id} now; `orchestrator status` goes on looking for it"


def ask(context: contexts.Context, asked: Sequence[jobs.Job], wish: Wish) -> list[Outcome]:
    """Store that Slurm is asked, ask it, and return the refusals."""
    command = wish.command.removeprefix("scontrol ") if context.is_local else wish.command
    with context.store.writing() as work:
        detail = f"{command} is asked"
        work.events.add_many((job.row, _event(context, job, detail, wish.source)) for job in asked)
    # To requeue what another controller has requeued meanwhile would end it in mid-work.
    context.guard.confirm_lease()
    refused = wish.ask(context.scheduler, [job.job_id for job in asked if job.job_id])
    said = [(job, refused[job.job_id]) for job in asked if job.job_id and job.job_id in refused]
    if said:
        with context.store.writing() as work:
            work.events.add_many(
                (job.row, _event(context, job, f"{command} was refused: {why}", wish.source))
                for job, why in said
            )
    return [Outcome(job=job, end=End.REFUSED, why=why) for job, why in said]


def _confirm(
    context: contexts.Context, asked: Sequence[jobs.Job], wish: Wish, confirm_seconds: float
) -> list[Outcome]:
    """Look at once and after 1, 2, 4 ... seconds, whatever the profile's floor."""
    if not asked:
        return []
    begun = context.clock.now()
    pause_seconds = 1.0
    while True:
        refresh.refresh_one(context, floor_seconds=0)
        found = stored(context, asked)
        outcomes = [_outcome(before, now, wish) for before, now in zip(asked, found, strict=True)]
        waiting = [one.job for one in outcomes if one.end is End.UNSEEN]
        left_seconds = confirm_seconds - (context.clock.now() - begun).total_seconds()
        if not waiting or left_seconds <= 0:
            return outcomes
        if pause_seconds == 2.0:
            names = naming.names_of(waiting)
            context.reporter.info(
                f"Waiting until {contexts.scheduler_name(waiting)} shows it for {names} ..."
            )
        longest_seconds = refresh.LOCAL_FLOOR_SECONDS if context.is_local else 15.0
        context.clock.sleep(min(pause_seconds, left_seconds, longest_seconds))
        pause_seconds = min(pause_seconds * 2, 15.0)


def _outcome(before: jobs.Job, now: jobs.Job, wish: Wish) -> Outcome:
    if wish.done(before, now):
        return Outcome(job=now, end=End.DONE)
    why = wish.hopeless(before, now)
    return Outcome(job=now, end=End.TOO_LATE if why else End.UNSEEN, why=why)


def stored(context: contexts.Context, wanted: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the jobs as they are in the database now, in the same order."""
    if not wanted:
        return []
    with context.store.reading() as work:
        query = jobs.JobQuery(rows=[job.row for job in wanted], limit=None)
        found = {job.row: job for job in work.jobs.find(query)}
    return [found[job.row] for job in wanted if job.row in found]


def _event(context: contexts.Context, job: jobs.Job, detail: str, source: str) -> jobs.JobEvent:
    at = context.clock.now()
    return jobs.JobEvent(at=at, kind="ask", attempt=job.attempt, source=source, detail=detail)
