"""A sweep's points become jobs: all at first, then those that are missing, failed or new.

A point gets its job in the transaction that stores the intent, and only if it has the job (or none)
that this process knows: so whatever is killed or runs twice, no point is there twice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from db import unit_of_work
from orchestrator import errors, jobs, sweeps
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import provenance, submit
from orchestrator.controller.sweeps import plan, queries

#: Told of each submission: its jobs.
Tell = Callable[[Sequence[jobs.Job]], None]


def _tell_nobody(tasks: Sequence[jobs.Job]) -> None:
    return


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sent:
    """What became of points that were to be submitted."""

    sweep: sweeps.StoredSweep
    #: points that Slurm has, and that wait for room
    submitted: int = 0
    waiting: int = 0


class BaselineError(errors.ConflictError):
    """The points that go first did not end well; nothing was submitted."""


#: Joins a transaction in which a sweep is stored.
WithIt = Callable[[unit_of_work.UnitOfWork, sweeps.StoredSweep], None]


def _nothing_more(work: unit_of_work.UnitOfWork, sweep: sweeps.StoredSweep) -> None:
    return


def create(
    context: contexts.Context,
    prepared: plan.Prepared,
    sweep: sweeps.Sweep,
    source: str,
    *,
    with_it: WithIt = _nothing_more,
) -> sweeps.StoredSweep:
    """Store a sweep and its points; ConflictError while another one of its name is at it."""
    there = prepared.context
    # Slurm may be asked for them: not while the database is held.
    cluster = clusters.facts(there).cluster
    with context.store.writing(durable=True) as work:
        for other in work.sweeps.newest(name=sweep.name):
            groups = work.sweeps.groups([other.row]).get(other.row, [])
            if left := queries.unfinished(other, groups):
                raise errors.ConflictError(
                    f"a sweep {sweep.name} is there (@{other.row}) and {left} of its points have "
                    f"not ended: `orchestrator sweep status @{other.row}` shows it, `orchestrator "
                    f"sweep add @{other.row} FILE` adds points to it, and --name gives this one "
                    "another name"
                )
        stored = work.sweeps.add(
            sweep,
            profile=context.profile.name,
            cluster=cluster,
            scheduler="local" if there.is_local else "slurm",
            source=source,
            folder=str(context.folder),
            created_at=context.clock.now(),
        )
        with_it(work, stored)
        return stored


def send(
    prepared: plan.Prepared,
    sweep: sweeps.StoredSweep,
    points: Mapping[str, tuple[int, int | None]],
    *,
    tell: Tell = _tell_nobody,
) -> Sent:
    """Submit what is prepared; `points` are number and present job, by identity.

    What Slurm has no room for waits for it, as with `submit --queue`. Raises what submit.send
    raises, and tells how to go on.
    """
    context = prepared.context
    git = _remembering(provenance.git_in(Path(sweep.folder)))
    sent = Sent(sweep=sweep)
    refused: list[tuple[jobs.Job, int]] = []
    for one in prepared.ready:
        count = len(one.submission.points)
        behind = next(
            (
                job
                for job, tasks in refused
                if submit_limit.keeps_out(job, tasks, one.submission.spec, count)
            ),
            None,
        )
        try:
            if behind is None:
                behind = _behind_baseline(context, sweep, one, refused)
            tasks = _send_one(context, sweep, one, points, behind, git)
        except errors.OrchestratorError as exc:
            exc.args = (f"{exc}\n{_rest(context, sweep)}",)
            raise
        except KeyboardInterrupt:
            context.reporter.warn(_rest(context, sweep))
            raise
        waits = tasks[0].is_deferred
        if waits and behind is None:
            refused.append((tasks[0], count))
        tell(tasks)
        context.guard.check()
        sent = dataclasses.replace(
            sent,
            submitted=sent.submitted + (0 if waits else count),
            waiting=sent.waiting + (count if waits else 0),
        )
    return sent


def send_new(
    prepared: plan.Prepared,
    sweep: sweeps.StoredSweep,
    points: Sequence[sweeps.Point],
    *,
    first: int = 1,
    tell: Tell = _tell_nobody,
) -> Sent:
    """Submit points that were just stored, numbered from `first`, as `send` does."""
    places: dict[str, tuple[int, int | None]] = {
        point.identity: (number, None) for number, point in enumerate(points, first)
    }
    return send(prepared, sweep, places, tell=tell)


def send_rest(
    there: contexts.Context, sweep: sweeps.StoredSweep, argv: Sequence[str]
) -> Sent | None:
    """Submit the points of an open sweep that nothing was submitted of; none: there are none."""
    left = [pair for pair in queries.points(there, sweep) if pair.job is None]
    if sweep.state != "open" or not left:
        return None
    prepared = plan.prepare(
        there,
        [pair.point for pair in left],
        source=sweep.source,
        argv=argv,
        max_running=sweep.max_running,
        baseline_first=queries.baseline_first(there, sweep),
        scheduler=sweep.scheduler,
    )
    return send(prepared, sweep, {pair.point.identity: (pair.number, pair.row) for pair in left})


def _behind_baseline(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    one: plan.Ready,
    refused: Sequence[tuple[jobs.Job, int]],
) -> jobs.Job | None:
    """Return the job behind which this submission waits, for its baseline does; none: it is sent.

    ConflictError where nothing makes the baseline end well by itself.
    """
    points = one.submission.points
    with context.store.reading() as work:
        before = queries.prerequisites(work, sweep.row, points[0].shape, len(points))
    if before.unsent and refused:
        return refused[0][0]
    if before.unsent or before.failed:
        count = before.unsent + before.failed
        raise BaselineError(
            f"{count} points of the baseline of {sweep.name} are not submitted "
            f"or did not end well: `orchestrator sweep rerun @{sweep.row}` submits them first"
        )
    return None


def _send_one(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    one: plan.Ready,
    points: Mapping[str, tuple[int, int | None]],
    behind: jobs.Job | None,
    git: provenance.Git,
) -> list[jobs.Job]:
    spec, runs_dir = one.submission.spec, context.configuration.runs_dir
    places = [points[point.identity] for point in one.submission.points]

    def bind(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        changes = [(number, old, job.row) for (number, old), job in zip(places, added, strict=True)]
        now = work.sweeps.get(sweep.row)
        if now is None or now.state != "open" or not work.sweeps.assign_jobs(sweep.row, changes):
            raise errors.ConflictError(
                f"another process submits or cancels points of {sweep.name} at this moment; these "
                f"were left to it: `orchestrator sweep status @{sweep.row}` shows them"
            )
        if again := [old for _, old, _ in changes if old is not None]:
            work.recovery.withdraw(again, "its point was submitted again")

    made = one.script
    papers = submit.papers_of(
        context,
        one.request,
        template=(made.template, made.template_hash),
        folder=Path(sweep.folder),
        git=git,
    )
    job, folder = submit.store_intent(
        context,
        spec,
        made.text,
        papers,
        cluster=sweep.cluster,
        runs_dir=runs_dir,
        queue=not context.is_local,
        behind=behind,
        sweep=sweep.name,
        with_it=bind,
    )
    if not job.is_deferred:
        submit.send(context, spec, job, folder, calling_folder=sweep.folder)
    return submit.tasks_of(context, job)


def _rest(context: contexts.Context, sweep: sweeps.StoredSweep) -> str:
    """Return how many points are not submitted, and how to go on."""
    with context.store.reading() as work:
        groups = work.sweeps.groups([sweep.row])[sweep.row]
    unsubmitted = (None, jobs.JobState.NOT_SUBMITTED)
    left = sum(one.points for one in groups if one.state in unsubmitted and not one.is_deferred)
    cure = f"`orchestrator sweep resume @{sweep.row}` goes on, each point once"
    return f"{left} points of {sweep.name} are not submitted; {cure}"


def _remembering(git: provenance.Git) -> provenance.Git:
    """Return git that is run once for each question: a sweep is of one state of the tree."""

    @functools.cache
    def ask(arguments: tuple[str, ...]) -> str | None:
        return git(arguments)

    return lambda arguments: ask(tuple(arguments))
