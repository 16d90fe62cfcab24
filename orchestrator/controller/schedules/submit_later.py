"""What schedules and graphs submit later: in which context, and the jobs that it led to."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from db import unit_of_work
from orchestrator import config, errors, graphs, jobs, sweeps
from orchestrator.controller.recovery import chains
from orchestrator.controller.schedules import install
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents
from orchestrator.controller.sweeps import queries
from orchestrator.schedules import records

if typing.TYPE_CHECKING:
    from orchestrator.controller.sweeps import submit_points

#: It submits a job, an array or a sweep. Both rows are None before.
Submitter: TypeAlias = records.Trigger | graphs.StoredNode

#: Assigns `job_row` or `sweep_row` to a trigger or node, in the transaction that stores the intent.
#: Raises ConflictError if it has one.
Assign: TypeAlias = Callable[..., None]

#: They locate the database. A controller uses its own.
_STATE_VARIABLES = frozenset({"ORCHESTRATOR_STATE_DIR", "ORCHESTRATOR_DATABASE"})


def variables(context: contexts.Context, inherit: Collection[str]) -> dict[str, str]:
    """Return the environment to store. inherit: variables that the specs name.

    Raises ConfigurationError if the configuration uses a variable that is not stored: the
    controller could not read it later.
    """
    environment = jobs.Environment(inherit=tuple(inherit))
    stored = intents.stored_environment(context, environment, reason="the controller submits later")
    read = install.ReadVariables(context.environ)
    # It was valid with the options of the command.
    with contextlib.suppress(errors.ConfigurationError):
        config.load(read, context.folder, {})
    if missing := sorted(read.names - stored.keys() - _STATE_VARIABLES):
        problem = (
            "the configuration uses this variable, which the controller will not have when it "
            'submits. Store it: --inherit {0}, or inherit = ["{0}"] in [environment] of a spec'
        )
        raise errors.ConfigurationError(
            [errors.Problem(source=f"${name}", message=problem.format(name)) for name in missing]
        )
    return {name: value for name, value in stored.items() if name not in _STATE_VARIABLES}


def restore(
    context: contexts.Context,
    stored: records.Schedule | graphs.StoredGraph,
    environment: Mapping[str, str],
    *,
    is_code_stored: bool,
) -> contexts.Context:
    """Return the context in which a schedule or graph was added.

    is_code_stored: its jobs run a snapshot, and do not need its folder. Raises ConflictError on a
    host that cannot submit its jobs, and ConfigurationError if the configuration files there have
    become invalid or untrusted.
    """
    cluster = clusters.facts(context.with_scheduler(stored.scheduler)).cluster
    if cluster != stored.cluster:
        raise errors.ConflictError(
            f"its cluster is {stored.cluster}, and this host belongs to {cluster}"
        )
    folder = Path(stored.folder)
    gone = "" if folder.is_dir() else f"its folder {folder} does not exist on this host"
    if gone and not is_code_stored:
        raise errors.ConflictError(gone)
    overrides = {"profile": stored.profile, "scheduler": stored.scheduler}
    try:
        configuration = config.load(environment, folder, overrides)
    except errors.ConfigurationError as error:
        if gone:
            raise errors.ConflictError(
                f"{gone}, and without its orchestrator.toml this is wrong: {error}"
            ) from error
        raise
    current = context.configuration
    for note in configuration.notes:
        if note not in current.notes:
            context.reporter.warn(note)
    return dataclasses.replace(
        context,
        configuration=dataclasses.replace(
            configuration, state_dir=current.state_dir, database=current.database
        ),
        environ=environment,
        folder=folder,
        is_local=stored.scheduler == "local",
    )


def submit_job(
    context: contexts.Context,
    spec: jobs.JobSpec,
    source: str,
    argv: Sequence[str],
    assign: Assign,
) -> str:
    """Submit a job or an array; return a message."""
    from orchestrator.controller.submission import job_scripts, submit

    request = job_scripts.Request(spec=spec, source=source, argv=argv)
    if spec.code.is_due:
        from orchestrator.controller.code import snapshots

        request = snapshots.request_taken(context, request)
    job = submit.submit(
        context,
        request,
        queue=True,
        in_transaction=lambda work, added: assign(work, job_row=added[0].row),
    )
    if job.is_deferred:
        return f"deferred ({job.reason}): @{job.row}, {job.name}"
    return f"submitted batch job {job.array_job_id or job.job_id} (@{job.row}, {job.name})"


def submit_sweep(
    context: contexts.Context,
    sweep: sweeps.Sweep,
    source: str,
    argv: Sequence[str],
    assign: Assign,
) -> str:
    """Submit a sweep; return a message."""
    from orchestrator.controller.sweeps import plan, submit_points

    scheduler = "local" if context.is_local else "slurm"
    if sweep.points[0].spec.code.snapshot:
        from orchestrator.controller.code import snapshots

        sweep = snapshots.sweep_taken(context, sweep, source)
    prepared = plan.prepare(
        context, sweep.table, sweep.points, source=source, argv=argv, scheduler=scheduler
    )
    submitted = submit_points.submit_new(
        prepared,
        sweep,
        source,
        with_sweep=lambda work, stored: assign(work, sweep_row=stored.row),
    )
    return points_message(submitted)


def points_message(submitted: submit_points.Submitted) -> str:
    sweep, count = submitted.sweep, submitted.submitted
    points = f"{count} point" + ("s" if count != 1 else "")
    reasons = [job.reason for job in submitted.jobs if job.is_deferred]
    more = f", {len(reasons)} deferred ({reasons[0]})" if reasons else ""
    return f"submitted {points} of sweep {sweep.name} (@{sweep.row}){more}"


def jobs_of(work: unit_of_work.UnitOfWork, submitter: Submitter) -> list[jobs.Job]:
    """Return the newest job of each array task or point."""
    if submitter.sweep_row is not None:
        return work.sweeps.jobs(submitter.sweep_row)
    first = None if submitter.job_row is None else work.jobs.get(submitter.job_row)
    return [] if first is None else chains.continued(work, work.jobs.of_submissions([first.token]))


def has_ended(work: unit_of_work.UnitOfWork, submitter: Submitter) -> bool:
    """Tell whether all jobs have ended, and no recovery rule will submit another one."""
    if submitter.sweep_row is not None:
        sweep = work.sweeps.get(submitter.sweep_row)
        groups = work.sweeps.groups([submitter.sweep_row]).get(submitter.sweep_row, [])
        if sweep is not None and queries.unfinished(sweep, groups):
            return False
    return all(job.is_over for job in jobs_of(work, submitter))


def any_live(work: unit_of_work.UnitOfWork, schedule: records.Schedule) -> bool:
    """Tell whether jobs of a schedule have not ended."""
    fired = work.schedules.triggers_without_verdict(schedule.row)
    return any(not has_ended(work, trigger) for trigger in fired)
