"""More of a sweep: the points that are missing, that failed, or that are new."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from orchestrator import errors, jobs, sweeps
from orchestrator.controller.resubmission import resend, resubmit
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import submit
from orchestrator.controller.sweeps import plan, queries
from orchestrator.controller.sweeps import submit as sweep_submit


def resume(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    *,
    argv: Sequence[str],
    tell: sweep_submit.Tell,
) -> sweep_submit.Sent:
    """Submit the points that nothing was submitted of, and those that Slurm never got.

    A sweep that was cancelled is open again.
    """
    _look(context, sweep)
    pairs = queries.points(context, sweep)
    wanted = [pair for pair in pairs if pair.job is None or _is_unsubmitted(pair.job)]
    if not wanted:
        return sweep_submit.Sent(sweep=_opened(context, sweep))
    return _send_again(context, sweep, wanted, argv, tell)


def rerun(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    *,
    failed: bool = False,
    missing: bool = False,
    named: Collection[str] = (),
    argv: Sequence[str],
    tell: sweep_submit.Tell,
) -> sweep_submit.Sent:
    """Submit points again, as new jobs; those that Slurm never got with their old tokens.

    `failed`: those that failed, by themselves or with their node; `missing`: those cancelled, lost
    or never submitted; `named`: those of these numbers or names, however they ended, and with one
    of an array that Slurm never got all of that array. NotFoundError for a name that there is not,
    ConflictError for a point that is named and has not ended.
    """
    _look(context, sweep)
    pairs = queries.points(context, sweep)
    wanted = []
    unknown = set(named)
    for pair in pairs:
        words = {str(pair.number), pair.point.name} & set(named)
        unknown -= words
        live = pair.job is not None and not pair.job.ended
        if words and live:
            raise errors.ConflictError(f"{pair.point.name} has not ended; nothing was submitted")
        if words or (not live and _is_of(pair.job, failed=failed, missing=missing)):
            wanted.append(pair)
    if unknown:
        raise errors.NotFoundError(
            f"{sweep.name} has no point {', '.join(sorted(unknown))}; "
            f"`orchestrator sweep status @{sweep.row} --points` lists them"
        )
    return _send_again(context, sweep, wanted, argv, tell)


def _is_of(job: jobs.Job | None, *, failed: bool, missing: bool) -> bool:
    """Tell whether a point that is not live belongs to the failed or the missing ones."""
    if job is None or job.state not in queries.FAILED:
        return missing and (job is None or job.state is not jobs.JobState.COMPLETED)
    return failed


def _send_again(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    wanted: Sequence[queries.PointJob],
    argv: Sequence[str],
    tell: sweep_submit.Tell,
) -> sweep_submit.Sent:
    """Submit points of which no job is live."""
    if not wanted:
        return sweep_submit.Sent(sweep=sweep)
    _refuse_other_place(context, sweep)
    as_they_are = _sendable(context, sweep, [pair.job for pair in wanted if pair.job])
    unsubmitted = [pair.job for pair in wanted if pair.job and pair.row in as_they_are]
    others = [pair for pair in wanted if pair.row not in as_they_are]
    baseline_first = queries.baseline_first(context, sweep)
    prepared = plan.prepare(
        context,
        [pair.point for pair in others],
        source=sweep.source,
        argv=argv,
        max_running=sweep.max_running,
        baseline_first=baseline_first,
        scheduler=sweep.scheduler,
    )
    sweep = _opened(context, sweep)
    places = {pair.point.identity: (pair.number, pair.row) for pair in others}
    # A baseline goes first, and either may hold it.
    smallest = min(wanted, key=lambda pair: sweeps.world_size(pair.point.spec))
    resent_first = not baseline_first or smallest not in others
    resent = _resend(prepared.context, unsubmitted, tell) if resent_first else (0, 0)
    sent = sweep_submit.send(prepared, sweep, places, tell=tell)
    if not resent_first:
        resent = _resend(prepared.context, unsubmitted, tell)
    return dataclasses.replace(
        sent, submitted=sent.submitted + resent[0], waiting=sent.waiting + resent[1]
    )


def _opened(context: contexts.Context, sweep: sweeps.StoredSweep) -> sweeps.StoredSweep:
    if sweep.state == "open":
        return sweep
    with context.store.writing() as work:
        work.sweeps.set_state(sweep, "open")
    context.reporter.info(f"Sweep {sweep.name} (@{sweep.row}) is open again")
    return dataclasses.replace(sweep, state="open")


def _resend(
    context: contexts.Context, unsubmitted: Iterable[jobs.Job], tell: sweep_submit.Tell
) -> tuple[int, int]:
    """Send what Slurm never got; return how many points it has now, and how many wait for room.

    An array is sent as a whole, whichever of its points are wanted.
    """
    submitted = waiting = 0
    for tasks in _by_token(unsubmitted):
        # The same rows, tokens and folders: a late ghost cannot run beside them.
        job = resubmit.send_again(context, tasks[0], queue=not context.is_local)
        sent = submit.tasks_of(context, job)
        tell(sent)
        waiting += len(sent) if job.is_deferred else 0
        submitted += 0 if job.is_deferred else len(sent)
    return submitted, waiting


def new_points(
    context: contexts.Context, stored: sweeps.StoredSweep, sweep: sweeps.Sweep
) -> list[sweeps.Point]:
    """Return the points of `sweep` that the stored one lacks, by their identity.

    ConflictError where a point that is there would be another job by now, where it is a study of
    another kind, or where nothing more is to be submitted.
    """
    if stored.state != "open":
        raise errors.ConflictError(
            f"{stored.name} is cancelled: `orchestrator sweep resume @{stored.row}` opens it again"
        )
    kinds = {stored.kind, sweep.table.kind}
    if len(kinds) > 1 and kinds & {"strong", "weak"}:
        raise errors.ConflictError(
            f'{stored.name} is of the kind "{stored.kind}", and this file of "{sweep.table.kind}": '
            "submit it as a sweep of its own, with --name"
        )
    _refuse_other_place(context, stored)
    with context.store.reading() as work:
        points = sweeps.points_of(work.sweeps.points(stored.row))
    known = {point.identity: point for point in points}
    for point in sweep.points:
        before = known.get(point.identity)
        # Its sweep's name does not make it another job.
        if before is not None and before.spec != dataclasses.replace(
            point.spec, name=before.spec.name
        ):
            raise errors.ConflictError(
                f"{before.name} is in {stored.name} as another job than in this file: "
                "submit it as a sweep of its own, with --name"
            )
    return [point for point in sweep.points if point.identity not in known]


def add(
    prepared: plan.Prepared,
    stored: sweeps.StoredSweep,
    sweep: sweeps.Sweep,
    new: Sequence[sweeps.Point],
    *,
    tell: sweep_submit.Tell,
) -> sweep_submit.Sent:
    """Store new points of a sweep, and submit them; ConflictError where they are not new by now."""
    context = prepared.context
    identities = {point.identity for point in new}
    with context.store.writing(durable=True) as work:
        now = work.sweeps.get(stored.row)
        if now is None or now.state != "open" or identities & work.sweeps.identities(stored.row):
            raise errors.ConflictError(
                f"another process adds points to {stored.name} (@{stored.row}), or cancels it, at "
                "this moment; nothing was added: `orchestrator sweep add` once more takes what is "
                "new then"
            )
        first = work.sweeps.add_points(stored.row, sweep, new)
    return sweep_submit.send_new(prepared, stored, new, first=first, tell=tell)


def _refuse_other_place(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Raise ConflictError where points would become other jobs than the sweep's earlier ones."""
    there = context.with_scheduler(sweep.scheduler)
    cluster = clusters.facts(there).cluster
    if cluster != sweep.cluster:
        raise errors.ConflictError(
            f"{sweep.name} is of cluster {sweep.cluster} and this host is of {cluster}; "
            "go on with it there"
        )
    if context.profile.name != sweep.profile:
        raise errors.ConflictError(
            f"{sweep.name} was submitted with the profile {sweep.profile}, and this one is "
            f"{context.profile.name}: say `orchestrator --profile {sweep.profile} ...`"
        )


def _is_unsubmitted(job: jobs.Job) -> bool:
    return job.state is jobs.JobState.NOT_SUBMITTED and not job.is_deferred


def _sendable(
    context: contexts.Context, sweep: sweeps.StoredSweep, several: Sequence[jobs.Job]
) -> set[int]:
    """Return the rows of the jobs that Slurm never got, and may get as they are.

    An array larger than Slurm takes today would be refused for ever: its points are planned anew.
    """
    unsubmitted = _by_token(job for job in several if _is_unsubmitted(job))
    if not unsubmitted:
        return set()
    there = context.with_scheduler(sweep.scheduler)
    most = clusters.facts(there, max_age_seconds=0).max_array_size
    return {
        job.row
        for tasks in unsubmitted
        if len(submit.tasks_of(context, tasks[0])) <= most
        for job in tasks
    }


def _by_token(several: Iterable[jobs.Job]) -> list[list[jobs.Job]]:
    found: dict[str, list[jobs.Job]] = {}
    for job in several:
        found.setdefault(job.token, []).append(job)
    return list(found.values())


def _look(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Refresh before points are judged; SlurmError where Slurm does not answer.

    What is not known now (a job that may have failed meanwhile) must not be submitted again.
    """
    fresh = resend.refresh_and_send(context, floor_seconds=0)
    if fresh.failing_since is not None and sweep.scheduler == "slurm":
        raise errors.SlurmError(f"Slurm does not answer: {fresh.error}; nothing was submitted")
