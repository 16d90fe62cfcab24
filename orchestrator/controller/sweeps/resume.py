"""Submit points of a stored sweep again: those that are missing, failed, named or new."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from orchestrator import errors, jobs, sweeps
from orchestrator.controller.planning import agreement
from orchestrator.controller.resubmission import deferred_jobs, resubmit
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import submit
from orchestrator.controller.sweeps import plan, queries, submit_points
from orchestrator.jobs import naming
from orchestrator.specs import ranks


def resume(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    *,
    argv: Sequence[str],
    report: submit_points.Report,
) -> submit_points.Submitted:
    """Submit the points without a job, and those whose job never reached Slurm.

    A cancelled sweep is opened again.
    """
    _refresh(context, sweep)
    points = queries.points(context, sweep)
    selected = [point for point in points if point.job is None or _is_unsubmitted(point.job)]
    if not selected:
        return submit_points.Submitted(sweep=_opened(context, sweep))
    return _submit_again(context, sweep, selected, argv, report)


def rerun(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    *,
    failed: bool = False,
    missing: bool = False,
    named: Collection[str] = (),
    argv: Sequence[str],
    report: submit_points.Report,
) -> submit_points.Submitted:
    """Submit points again as new jobs; a job that never reached Slurm keeps its token.

    `failed`: points that failed. `missing`: points that were cancelled, lost or never submitted.
    `named`: points with these numbers or names, whatever their state; of an array that never
    reached Slurm all points. NotFoundError for an unknown name, ConflictError for a named point
    that has not ended.
    """
    _refresh(context, sweep)
    selected = []
    unknown = set(named)
    for point in queries.points(context, sweep):
        names = {str(point.number), point.name} & set(named)
        unknown -= names
        is_live = point.job is not None and not point.job.ended
        if names and is_live:
            raise errors.ConflictError(f"{point.name} has not ended. Nothing was submitted.")
        if names or is_due(point.job, failed=failed, missing=missing):
            selected.append(point)
    if unknown:
        raise errors.NotFoundError(
            f"{sweep.name} has no point {', '.join(sorted(unknown))}: "
            f"`orchestrator sweep status @{sweep.row} --points` lists its points"
        )
    return _submit_again(context, sweep, selected, argv, report)


def new_points(
    context: contexts.Context, stored: sweeps.StoredSweep, sweep: sweeps.Sweep
) -> list[sweeps.Point]:
    """Return the points of `sweep` that the stored sweep lacks, by their identity.

    ConflictError if a stored point would be another job now, if the kinds of study differ, or if
    the stored sweep is cancelled.
    """
    if stored.state != "open":
        raise errors.ConflictError(
            f"{stored.name} is cancelled: `orchestrator sweep resume @{stored.row}` opens it again"
        )
    kinds = {stored.kind, sweep.table.kind}
    if len(kinds) > 1 and kinds & {"strong", "weak"}:
        raise errors.ConflictError(
            f'{stored.name} is of kind "{stored.kind}", and this file is of kind '
            f'"{sweep.table.kind}": submit it as another sweep, with --name'
        )
    _check_same_cluster(context, stored)
    points = sweeps.points_of(queries.points(context, stored))
    known = {point.identity: point for point in points}
    # New points run the code of the others.
    code = points[0].spec.code
    new = sweeps.with_code(sweep.points, {point.shape.key: code for point in sweep.points})
    if code.tree is not None:
        from orchestrator.controller.code import snapshots

        new = snapshots.sweep_taken(
            context, dataclasses.replace(sweep, points=new), stored.source
        ).points
    for point in new:
        before = known.get(point.identity)
        # Another sweep name does not make another job.
        if before is not None and before.spec != dataclasses.replace(
            point.spec, name=before.spec.name
        ):
            raise errors.ConflictError(
                f"{before.name} of {stored.name} is another job than in this file: "
                "submit it as another sweep, with --name"
            )
    return [point for point in new if point.identity not in known]


def add_points(
    prepared: plan.Prepared,
    stored: sweeps.StoredSweep,
    *,
    report: submit_points.Report,
) -> submit_points.Submitted:
    """Store prepared points and submit them; ConflictError if they were added meanwhile."""
    agreement.on_points(stored.name, prepared)
    identities = {point.identity for point in prepared.points}
    with prepared.context.store.writing(durable=True) as work:
        is_open = queries.is_open(work, stored.row)
        if not is_open or identities & work.sweeps.identities(stored.row):
            raise errors.ConflictError(
                f"another process added points to {stored.name} (@{stored.row}) or cancelled it. "
                "Nothing was submitted. Run `orchestrator sweep add` again to add what is still new"
            )
        work.sweeps.add_points(stored.row, prepared.points)
    return submit_points.submit_prepared(prepared, stored, report=report)


def is_due(job: jobs.Job | None, *, failed: bool = True, missing: bool = True) -> bool:
    """Return whether a point with this newest job failed or is missing."""
    if job is not None and not job.ended:
        return False
    if job is not None and job.state in queries.FAILED:
        return failed
    return missing and (job is None or job.state is not jobs.JobState.COMPLETED)


def _is_unsubmitted(job: jobs.Job) -> bool:
    return job.state is jobs.JobState.NOT_SUBMITTED and not job.is_deferred


def _submit_again(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    selected: Sequence[sweeps.StoredPoint],
    argv: Sequence[str],
    report: submit_points.Report,
) -> submit_points.Submitted:
    if not selected:
        return submit_points.Submitted(sweep=sweep)
    _check_same_cluster(context, sweep)
    unsubmitted = _resendable(context, sweep, [point.job for point in selected if point.job])
    resent_jobs = [job for tasks in unsubmitted for job in tasks]
    resent_rows = {job.row for job in resent_jobs}
    points = sweeps.points_of(selected)
    new = [point for point in points if point.job_row not in resent_rows]
    prepared = plan.prepare(context, sweep, new, source=sweep.source, argv=argv)
    agreement.on_points(sweep.name, prepared, resent_jobs)
    sweep = _opened(context, sweep)
    # The baseline goes first, and may be in either group.
    smallest = min(points, key=lambda point: ranks.world_size(point.spec))
    new_first = sweep.baseline_first and smallest in new
    resent = [] if new_first else _resend(prepared.context, unsubmitted, report)
    result = submit_points.submit_prepared(prepared, sweep, report=report)
    if new_first:
        resent = _resend(prepared.context, unsubmitted, report)
    return dataclasses.replace(result, jobs=[*result.jobs, *resent])


def _resend(
    context: contexts.Context,
    unsubmitted: Sequence[Sequence[jobs.Job]],
    report: submit_points.Report,
) -> list[jobs.Job]:
    """Send submissions that never reached Slurm; an array is sent as a whole."""
    resent = []
    for tasks in unsubmitted:
        # With the same token: a delayed first sbatch cannot start a second job.
        job = resubmit.send_again(context, tasks[0], queue=not context.is_local)
        report(sent := submit.tasks_of(context, job))
        resent += sent
    return resent


def _resendable(
    context: contexts.Context, sweep: sweeps.StoredSweep, selected: Sequence[jobs.Job]
) -> list[list[jobs.Job]]:
    """Return the jobs that never reached Slurm and can be sent as they are, by submission.

    The points of an array that is larger than today's MaxArraySize are planned anew.
    """
    submissions = naming.by_submission(filter(_is_unsubmitted, selected))
    if not submissions:
        return []
    facts = clusters.facts(context.with_scheduler(sweep.scheduler), max_age_seconds=0)
    return [
        tasks
        for tasks in submissions
        if len(submit.tasks_of(context, tasks[0])) <= facts.max_array_size
    ]


def _opened(context: contexts.Context, sweep: sweeps.StoredSweep) -> sweeps.StoredSweep:
    if sweep.state == "open":
        return sweep
    with context.store.writing() as work:
        work.sweeps.set_state(sweep, "open")
    context.reporter.info(f"Sweep {sweep.name} (@{sweep.row}) is open again")
    return dataclasses.replace(sweep, state="open")


def _check_same_cluster(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Raise ConflictError if new jobs of the sweep would get another cluster or profile."""
    cluster = clusters.facts(context.with_scheduler(sweep.scheduler)).cluster
    if cluster != sweep.cluster:
        raise errors.ConflictError(
            f"{sweep.name} was submitted to cluster {sweep.cluster}, and this host belongs to "
            f"{cluster}: run the command on {sweep.cluster}"
        )
    if context.profile.name != sweep.profile:
        raise errors.ConflictError(
            f"{sweep.name} was submitted with profile {sweep.profile}, and the current profile is "
            f"{context.profile.name}: run `orchestrator --profile {sweep.profile} ...`"
        )


def _refresh(context: contexts.Context, sweep: sweeps.StoredSweep) -> None:
    """Refresh job states; SlurmError if Slurm does not answer: old states must not be acted on."""
    freshness = deferred_jobs.refresh_and_send(context, floor_seconds=0)
    if freshness.failing_since is not None and sweep.scheduler == "slurm":
        error = freshness.last_error
        raise errors.SlurmError(f"Slurm does not answer: {error}. Nothing was submitted.")
