"""What a sweep, or some of its points, would be in Slurm: arrays, each with its script."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Sequence

from orchestrator import errors, sweeps
from orchestrator.controller.session import context as contexts
from orchestrator.controller.submission import local_jobs, render
from orchestrator.rendering import templates
from orchestrator.specs import ranks

#: Of a cluster that cannot be asked: Slurm's default (man slurm.conf, MaxArraySize).
USUAL_MAX_ARRAY_SIZE = 1001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """One submission, which has been checked."""

    submission: sweeps.Submission
    request: render.Request
    script: templates.Script


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """Points that can be submitted as they are."""

    #: of the scheduler they are for
    context: contexts.Context
    #: in this order
    ready: tuple[Ready, ...]
    totals: sweeps.ResourceTotals


def prepare(
    context: contexts.Context,
    points: Sequence[sweeps.Point],
    *,
    source: str,
    argv: Sequence[str],
    max_running: int | None,
    baseline_first: bool,
    scheduler: str | None = None,
    without_slurm: bool = False,
) -> Prepared:
    """Return the points as arrays with their scripts; nothing is stored, and none submitted.

    `scheduler`: "slurm" or "local"; none: as in these surroundings. `without_slurm`: only to look
    at, so Slurm need not answer. SpecError where a script cannot be made, or this machine can never
    run it.
    """
    if scheduler is None:
        here = render.is_local(context.configuration, context.environ)
        scheduler = "local" if here else "slurm"
    context = contexts.at(context, scheduler)
    limits = _limits(context, points, without_slurm=without_slurm)
    orders = max_running is not None or baseline_first
    if orders and any("?" in (one.spec.dependency or "") for one in points):
        told = '"?" cannot go with sweep.max_running or baseline_first, which add dependencies'
        problem = errors.Problem(source=source, key="job.dependency", message=told)
        raise errors.SpecError([problem])
    plan = sweeps.plan(points, limits, context.profile, max_running=max_running)
    ready = []
    submissions = plan.submissions
    if baseline_first:
        submissions = tuple(sorted(submissions, key=lambda one: sweeps.world_size(one.spec)))
    for one in submissions:
        request = render.Request(spec=one.spec, source=source, argv=argv)
        script = render.make(context.configuration, request, on_this_machine=context.is_local)
        if not without_slurm:
            local_jobs.check(context, one.spec, script.text)
        ready.append(Ready(submission=one, request=request, script=script))
    return Prepared(context=context, ready=tuple(ready), totals=plan.totals)


def whole(
    context: contexts.Context,
    sweep: sweeps.Sweep,
    *,
    source: str,
    argv: Sequence[str],
    scheduler: str | None = None,
    without_slurm: bool = False,
) -> Prepared:
    """Return all points of a sweep as `prepare` does."""
    return prepare(
        context,
        sweep.points,
        source=source,
        argv=argv,
        max_running=sweep.table.max_running,
        baseline_first=sweep.table.baseline_first,
        scheduler=scheduler,
        without_slurm=without_slurm,
    )


def needs_consent(context: contexts.Context, prepared: Prepared) -> str:
    """Return what is more than the profile lets be submitted unasked; "" where nothing is."""
    totals = prepared.totals
    most_points, most_hours = context.profile.confirm_points, context.profile.confirm_gpu_hours
    found = []
    if totals.points > most_points:
        found.append(f"{totals.points} points are more than confirm_points = {most_points}")
    if totals.gpu_hours > most_hours:
        found.append(
            f"{totals.gpu_hours:.4g} GPU-hours are more than confirm_gpu_hours = {most_hours}"
        )
    endless = sum(
        len(one.submission.points)
        for one in prepared.ready
        if ranks.gpus_per_node(one.submission.spec)
        and sweeps.resources_of(one.submission.spec, context.profile).points_without_time_limit
    )
    # On one's own machine GPU-hours are nobody's budget, and time limits are rare.
    if endless and not prepared.context.is_local:
        found.append(f"{endless} points with GPUs have no known time limit (job.time_limit)")
    return ", ".join(found)


def _limits(
    context: contexts.Context, points: Sequence[sweeps.Point], *, without_slurm: bool
) -> sweeps.Limits:
    try:
        # MaxArraySize may have become smaller today, and all arrays would be refused.
        facts = contexts.cluster_facts(context, max_age_seconds=0)
    except errors.SlurmError:
        if not without_slurm:
            raise
        return sweeps.Limits(
            max_array_size=USUAL_MAX_ARRAY_SIZE, max_tasks=context.profile.max_submit_jobs
        )
    most = context.profile.max_submit_jobs
    if most is None and len(points) > 1 and facts.accounting and not context.is_local:
        most = _submit_limit(context, points)
    if most is not None and len(points) > most:
        # An array as large as the limit fits in only when nothing else is there; smaller ones
        # follow as room appears.
        most = max(1, most // 2)
    return sweeps.Limits(max_array_size=facts.max_array_size, max_tasks=most)


def _submit_limit(context: contexts.Context, points: Sequence[sweeps.Point]) -> int | None:
    """Return how many jobs of these kinds Slurm lets wait; none where it does not say."""
    try:
        with context.waiting("Asking Slurm (sacctmgr)"):
            limits = context.slurm.submit_limits(pwd.getpwuid(os.getuid()).pw_name)
    except (errors.SlurmError, KeyError):
        # Only a help: an array that is too large is refused for now, and can be cancelled.
        return None
    kinds = {(one.spec.account, one.spec.partition, one.spec.qos) for one in points}
    found = [
        limits.max_jobs(account=account, partition=partition, qos=qos)
        for account, partition, qos in kinds
    ]
    return min((one for one in found if one is not None), default=None)
