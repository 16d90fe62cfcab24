"""Prepare points for submission: job arrays, each with its script. Nothing is stored here."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Sequence

from orchestrator import errors, sweeps
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, job_scripts, requests
from orchestrator.rendering import templates
from orchestrator.specs import ranks

#: Slurm's default (man slurm.conf, MaxArraySize), if Slurm cannot be asked.
DEFAULT_MAX_ARRAY_SIZE = 1001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    submission: sweeps.Submission
    request: job_scripts.Request
    script: templates.Script


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    #: of the scheduler that runs them
    context: contexts.Context
    points: Sequence[sweeps.Point]
    #: in the order of submission
    ready: tuple[Ready, ...]
    totals: sweeps.ResourceTotals


def described(
    context: contexts.Context, description: requests.Description, *, dry_run: bool = False
) -> tuple[sweeps.Sweep, str, Prepared]:
    """Return the sweep that is described, the path of its file, and its prepared points.

    The snapshot that its spec requests is taken, unless it is a dry run. Raises SpecError.
    """
    sweep, source = requests.sweep(description, context.configuration)
    if sweep.points[0].spec.code.is_due and not dry_run:
        # Few sweeps have a snapshot, and this loads many modules.
        from orchestrator.controller.code import snapshots

        sweep = snapshots.sweep_taken(context, sweep, source)
    prepared = prepare(
        context,
        sweep.table,
        sweep.points,
        source=source,
        argv=description.argv,
        without_slurm=dry_run,
    )
    return sweep, source, prepared


def prepare(
    context: contexts.Context,
    sweep: sweeps.Table | sweeps.StoredSweep,
    points: Sequence[sweeps.Point],
    *,
    source: str,
    argv: Sequence[str],
    scheduler: str | None = None,
    without_slurm: bool = False,
) -> Prepared:
    """Prepare points of a sweep; SpecError if a job cannot be rendered or can never run here.

    `scheduler`: "slurm", "local", or None for the one of a stored sweep, else of this machine. With
    `without_slurm` Slurm need not answer, for a dry run.
    """
    if isinstance(sweep, sweeps.StoredSweep):
        scheduler = sweep.scheduler
    elif scheduler is None:
        is_local = job_scripts.is_local(context.configuration, context.environ)
        scheduler = "local" if is_local else "slurm"
    context = context.with_scheduler(scheduler)
    points = _with_possible_hours(context, points)
    adds_dependencies = sweep.max_running is not None or sweep.baseline_first
    if adds_dependencies and any("?" in (point.spec.dependency or "") for point in points):
        message = '"?" cannot go with sweep.max_running or baseline_first, which add dependencies'
        raise errors.SpecError(
            [errors.Problem(source=source, key="job.dependency", message=message)]
        )
    max_tasks = _max_tasks(context, points, without_slurm=without_slurm)
    submissions = sweeps.plan(points, max_tasks, max_running=sweep.max_running)
    if sweep.baseline_first:
        submissions.sort(key=lambda submission: ranks.world_size(submission.spec))
    ready = []
    for submission in submissions:
        request = job_scripts.Request(spec=submission.spec, source=source, argv=argv)
        script = job_scripts.render(context.configuration, request, is_local=context.is_local)
        if not without_slurm:
            intents.check(context, submission.spec, script.text)
        ready.append(Ready(submission=submission, request=request, script=script))
    return Prepared(context=context, points=points, ready=tuple(ready), totals=sweeps.total(points))


def needs_consent(prepared: Prepared) -> str:
    """Return what exceeds the profile's limits for submitting without a question; else ""."""
    totals, profile = prepared.totals, prepared.context.profile
    reasons = []
    if totals.points > profile.confirm_points:
        reasons.append(
            f"{totals.points} points are more than confirm_points = {profile.confirm_points}"
        )
    if totals.gpu_hours > profile.confirm_gpu_hours:
        reasons.append(
            f"{totals.gpu_hours:.4g} GPU-hours are more than "
            f"confirm_gpu_hours = {profile.confirm_gpu_hours}"
        )
    unlimited = sum(
        len(ready.submission.points)
        for ready in prepared.ready
        if ranks.gpus_per_node(ready.submission.spec)
        and ready.submission.points[0].shape.node_hours is None
    )
    # Nobody has a GPU-hour budget on their own machine, and time limits are rare there.
    if unlimited and not prepared.context.is_local:
        reasons.append(f"{unlimited} points with GPUs have no known time limit (job.time_limit)")
    return ", ".join(reasons)


def _with_possible_hours(
    context: contexts.Context, points: Sequence[sweeps.Point]
) -> Sequence[sweeps.Point]:
    """Return points without GPU-hours if this machine runs them and has no GPU."""
    if not context.is_local or not any(point.shape.gpu_hours for point in points):
        return points
    from orchestrator.controller.submission import local_jobs

    if local_jobs.has_gpus(context):
        return points
    return [
        dataclasses.replace(
            point, shape=dataclasses.replace(point.shape, gpu_hours=point.shape.gpu_hours and 0.0)
        )
        for point in points
    ]


def _max_tasks(
    context: contexts.Context, points: Sequence[sweeps.Point], *, without_slurm: bool
) -> int:
    limit = context.profile.max_submit_jobs
    max_array_size = DEFAULT_MAX_ARRAY_SIZE
    try:
        # max_age_seconds=0: a larger array than today's MaxArraySize would be refused.
        facts = clusters.facts(context, max_age_seconds=0)
    except errors.SlurmError:
        if not without_slurm:
            raise
    else:
        # The largest index is MaxArraySize - 1 (man slurm.conf), and tasks count from 0.
        max_array_size = facts.max_array_size
        if limit is None and len(points) > 1 and facts.accounting and not context.is_local:
            limit = _submit_limit(context, points)
        if limit is not None and len(points) > limit:
            # An array as large as the limit has to wait until nothing else is queued.
            limit = max(1, limit // 2)
    return max(1, min(max_array_size, limit or max_array_size))


def _submit_limit(context: contexts.Context, points: Sequence[sweeps.Point]) -> int | None:
    """Return how many such jobs Slurm's accounting lets this user submit; None if unknown."""
    try:
        with context.reporter.activity("Asking Slurm (sacctmgr)"):
            limits = context.slurm.submit_limits(pwd.getpwuid(os.getuid()).pw_name)
    except (errors.SlurmError, KeyError):
        # Only an optimisation: Slurm refuses an array that is too large.
        return None
    kinds = {(point.spec.account, point.spec.partition, point.spec.qos) for point in points}
    known = [
        limits.max_jobs(account=account, partition=partition, qos=qos)
        for account, partition, qos in kinds
    ]
    return min((limit for limit in known if limit is not None), default=None)
