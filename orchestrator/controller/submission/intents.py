"""The intent to submit a job: its run folder and its rows, stored before sbatch is called."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import (
    dependencies,
    environments,
    sbatch_outcomes,
)
from orchestrator.jobs import dependency
from orchestrator.local import checks, processes
from orchestrator.rendering import batch_options
from orchestrator.toml import values
from orchestrator.tracking import run_folder

#: work to do in the transaction that stores the intent; it gets the new jobs
InTransaction: TypeAlias = Callable[[unit_of_work.UnitOfWork, Sequence[jobs.Job]], None]


class NeverError(errors.ConflictError):
    """A dependency can never be satisfied; nothing was submitted."""


def _nothing(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
    return


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
    """What is to be submitted."""

    spec: jobs.JobSpec
    script: str
    #: JSON, from provenance.collect()
    provenance: str
    cluster: str
    runs_dir: Path
    #: defer the job if Slurm refuses it for now
    queue: bool = False
    #: defer it from the start, like this job
    behind: jobs.Job | None = None
    #: None: the spec's dependencies. While Slurm does not have one of the jobs, it is deferred
    depends: Sequence[dependency.Dependency] | None = None
    #: array tasks to submit; None: all
    tasks: Sequence[int] | None = None
    #: name of the sweep
    sweep: str | None = None
    #: row of the job that it continues
    continues: int | None = None
    #: symbolic links in the run folder: name -> target
    links: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    in_transaction: InTransaction = _nothing


def check(
    context: contexts.Context,
    spec: jobs.JobSpec,
    script: str,
    *,
    advice: str = dependencies.LEAVE_OUT,
) -> None:
    """Raise ConflictError or SpecError for what would keep the job from ever running.

    advice: what to do about a dependency on a job that Slurm has forgotten.
    """
    if context.is_local:
        from orchestrator.controller.submission import local_jobs

        spec = batch_options.with_directives(spec, script)
        checks.check_gpus(local_jobs.requested_gpus(spec), local_jobs.available_slots(context))
    dependencies.check(context, spec.dependency, advice=advice)


def store(context: contexts.Context, intent: Intent) -> jobs.Job:
    """Create the run folder, and store the job or one row for each array task.

    Returns the (first) job. ConflictError if it can never start.
    """
    spec = intent.spec
    tasks = spec.array.task_ids if intent.tasks is None else intent.tasks
    depends, deferral = _deferral(context, intent)
    with context.store.reading() as work:
        token = run_folder.new_token(work.settings.installation_id())
    # The folder comes first. A folder without a row does no harm; a row whose script cannot be
    # written would be an intent that nobody can carry out.
    folder = _create_folder(context, intent, token, is_kept=intent.queue or deferral is not None)
    submission = jobs.Submission(
        token=token,
        cluster=intent.cluster,
        scheduler="local" if context.is_local else "slurm",
        name=spec.name,
        script=intent.script,
        spec=specs.to_json(spec),
        run_dir=str(folder.path),
        provenance=intent.provenance,
        created_at=context.clock.now(),
    )
    if deferral is not None:
        state: dict[str, Any] = {
            "state": jobs.JobState.NOT_SUBMITTED,
            "settled": True,
            **deferral,
        }
    else:
        # If this process is killed before sbatch answers, the controller tries again then.
        retry_at = submit_limit.after(1, context.profile, context.clock.now())
        state = {
            "submitter": processes.this_process(),
            "resend_at": retry_at if intent.queue else None,
        }
    try:
        with context.store.writing(durable=True) as work:
            added = work.jobs.add_submission(
                submission,
                array_tasks=tasks,
                labels=spec.labels,
                sweep=intent.sweep,
                continues=intent.continues,
                recovers=spec.retry.is_on or None,
                partition=spec.partition,
                account=spec.account,
                qos=spec.qos,
                nodes=spec.resources.nodes,
                time_limit_seconds=values.seconds(spec.time_limit) if spec.time_limit else None,
                **state,
            )
            if depends:
                work.dependencies.add(added[0].row, depends)
            source = context.actor if intent.continues is None else "rules"
            event = sbatch_outcomes.event(context, "intent stored", added[0].state, source)
            work.events.add_many((job.row, event) for job in added)
            intent.in_transaction(work, added)
    except errors.OrchestratorError as error:
        if not _may_be_stored(context, token, error):
            run_folder.remove(folder)
        raise
    return added[0]


def _deferral(
    context: contexts.Context, intent: Intent
) -> tuple[Sequence[dependency.Dependency], dict[str, object] | None]:
    """Return the dependencies, and the reason and the time of the next attempt if deferred."""
    _, references = dependency.split(intent.spec.dependency)
    depends = intent.depends
    status = dependency.Status()
    if references or depends:
        from orchestrator.controller.refresh import refresh

        # Slurm may have forgotten how a job ended that is still running in the database.
        refresh.refresh(context)
        with context.store.reading() as work:
            if depends is None:
                depends = dependencies.resolve(work, references)
            status = dependencies.status(work, depends)
    if status.never:
        raise NeverError(f"the job could never start: {status.never[0]}. Nothing was submitted.")
    if intent.behind is not None:
        behind = intent.behind
        return depends or (), {"reason": behind.reason, "resend_at": behind.resend_at}
    if not status.unsent:
        return depends or (), None
    if context.is_local:
        raise errors.ConflictError(
            f"{status.unsent[0]}. A local job can only depend on jobs in this machine's queue. "
            "Nothing was submitted."
        )
    now = context.clock.now()
    return depends or (), submit_limit.deferred(status.unsent[0], context.profile, now)


def _create_folder(
    context: contexts.Context, intent: Intent, token: str, *, is_kept: bool
) -> run_folder.RunFolder:
    """Create the run folder; `is_kept`: the environment is stored in it."""
    spec = intent.spec
    files = {"script.sbatch": intent.script}
    if is_kept or spec.retry.is_on:
        reason = "the job may be submitted later"
        environ = json.dumps(environments.stored(context, spec.environment, reason=reason))
        if is_kept:
            files[run_folder.ENVIRONMENT] = environ
        if spec.retry.is_on:
            files[run_folder.RETRY_ENVIRONMENT] = environ
    return run_folder.create(
        intent.runs_dir,
        spec.name,
        token,
        files,
        intent.links,
        copies={"spec.json": specs.to_json(spec), "provenance.json": intent.provenance},
        shared_folders=context.configuration.shared_folders,
    )


def _may_be_stored(context: contexts.Context, token: str, error: errors.OrchestratorError) -> bool:
    """Return whether the intent may be stored: a server may be lost after its commit."""
    if not isinstance(error, errors.DatabaseError):
        return False
    try:
        with context.store.reading() as work:
            return work.jobs.submission(token) is not None
    except errors.DatabaseError:
        return True
