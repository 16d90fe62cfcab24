"""Prepare points for submission: job arrays, each with its script. Nothing is stored here."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Sequence

from orchestrator import errors, sweeps
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, render
from orchestrator.controller.sweeps import queries
from orchestrator.rendering import templates
from orchestrator.specs import ranks

#: Slurm's default (man slurm.conf, MaxArraySize), if Slurm cannot be asked.
DEFAULT_MAX_ARRAY_SIZE = 1001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """One checked submission."""

    submission: sweeps.Submission
    request: render.Request
    script: templates.Script


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """Points that are ready to be submitted."""

    #: of the scheduler that runs them
    context: contexts.Context
    #: in the order of submission
    ready: tuple[Ready, ...]
    totals: sweeps.ResourceTotals


def prepare_sweep(
    context: contexts.Context,
    sweep: sweeps.Sweep,
    *,
    source: str,
    argv: Sequence[str],
    scheduler: str | None = None,
    without_slurm: bool = False,
) -> Prepared:
    """Prepare all points of a sweep; SpecError if a job cannot be rendered or can never run here.

    `scheduler`: "slurm", "local", or None for the one of this machine. With `without_slurm` Slurm
    need not answer, for a dry run.
    """
    if scheduler is None:
        is_local = render.is_local(context.configuration, context.environ)
        scheduler = "local" if is_local else "slurm"
    return _prepare(
        context.with_scheduler(scheduler),
        sweep.points,
        source=source,
        argv=argv,
        max_running=sweep.table.max_running,
        baseline_first=sweep.table.baseline_first,
        without_slurm=without_slurm,
    )


def prepare_points(
    context: contexts.Context,
    sweep: sweeps.StoredSweep,
    points: Sequence[sweeps.Point],
    argv: Sequence[str],
    *,
    source: str | None = None,
) -> Prepared:
    """Prepare points of a stored sweep, as prepare_sweep does."""
    return _prepare(
        context.with_scheduler(sweep.scheduler),
        points,
        source=source or sweep.source,
        argv=argv,
        max_running=sweep.max_running,
        baseline_first=queries.baseline_first(context, sweep),
        without_slurm=False,
    )


def _prepare(
    context: contexts.Context,
    points: Sequence[sweeps.Point],
    *,
    source: str,
    argv: Sequence[str],
    max_running: int | None,
    baseline_first: bool,
    without_slurm: bool,
) -> Prepared:
    adds_dependencies = max_running is not None or baseline_first
    if adds_dependencies and any("?" in (point.spec.dependency or "") for point in points):
        message = '"?" cannot go with sweep.max_running or baseline_first, which add dependencies'
        raise errors.SpecError(
            [errors.Problem(source=source, key="job.dependency", message=message)]
        )
    limits = _limits(context, points, without_slurm=without_slurm)
    planned = sweeps.plan(points, limits, context.profile, max_running=max_running)
    submissions = planned.submissions
    if baseline_first:
        submissions = tuple(
            sorted(submissions, key=lambda submission: ranks.world_size(submission.spec))
        )
    ready = []
    for submission in submissions:
        request = render.Request(spec=submission.spec, source=source, argv=argv)
        script = render.render(context.configuration, request, is_local=context.is_local)
        if not without_slurm:
            intents.check(context, submission.spec, script.text)
        ready.append(Ready(submission=submission, request=request, script=script))
    return Prepared(context=context, ready=tuple(ready), totals=planned.totals)


def needs_consent(context: contexts.Context, prepared: Prepared) -> str:
    """Return what exceeds the profile's limits for submitting without a question; else ""."""
    totals, profile = prepared.totals, context.profile
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
        and sweeps.resources_of(ready.submission.spec, profile).points_without_time_limit
    )
    # Nobody has a GPU-hour budget on their own machine, and time limits are rare there.
    if unlimited and not prepared.context.is_local:
        reasons.append(f"{unlimited} points with GPUs have no known time limit (job.time_limit)")
    return ", ".join(reasons)


def _limits(
    context: contexts.Context, points: Sequence[sweeps.Point], *, without_slurm: bool
) -> sweeps.Limits:
    most = context.profile.max_submit_jobs
    try:
        # max_age_seconds=0: a larger array than today's MaxArraySize would be refused.
        facts = clusters.facts(context, max_age_seconds=0)
    except errors.SlurmError:
        if not without_slurm:
            raise
        return sweeps.Limits(max_array_size=DEFAULT_MAX_ARRAY_SIZE, max_tasks=most)
    if most is None and len(points) > 1 and facts.accounting and not context.is_local:
        most = _submit_limit(context, points)
    if most is not None and len(points) > most:
        # An array as large as the limit has to wait until nothing else is queued.
        most = max(1, most // 2)
    return sweeps.Limits(max_array_size=facts.max_array_size, max_tasks=most)


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
