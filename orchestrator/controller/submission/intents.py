"""The intent to submit a job: its run folder and its rows, stored before sbatch is called."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.session import contexts
from orchestrator.controller.submission import dependencies, log_paths
from orchestrator.files import run_folder
from orchestrator.jobs import dependency
from orchestrator.local import processes
from orchestrator.slurm import variables
from orchestrator.toml import values

#: work to do in the transaction that stores the intent; it gets the new jobs
InTransaction: TypeAlias = Callable[[unit_of_work.UnitOfWork, Sequence[jobs.Job]], None]
_NAMES_SHOWN = 3


class NeverError(errors.ConflictError):
    """A dependency can never be satisfied; nothing was submitted."""


def nothing(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
    """Do nothing in the transaction."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
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
    in_transaction: InTransaction = nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    #: the (first) job of the submission
    job: jobs.Job
    submission: jobs.Submission
    #: that of the submission
    spec: jobs.JobSpec
    #: the dependencies on jobs and sweeps of ours
    depends: Sequence[dependency.Dependency]


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

        local_jobs.requirements(context, spec, script)
    if spec.container.runtime != "none":
        # Few jobs have an image, and `submit` loads few modules.
        from orchestrator.controller.images import architectures

        architectures.check(context, spec)
    dependencies.check(context, spec.dependency, advice=advice)


def store(context: contexts.Context, intent: Intent) -> Stored:
    """Create the run folder, and store the job or one row for each array task.

    Raises ConflictError if it can never start.
    """
    spec = intent.spec
    log_paths.check(spec, Path(json.loads(intent.provenance)["folder"]))
    depends, deferred = _deferral(context, intent)
    with context.store.reading() as work:
        token = run_folder.new_token(work.settings.installation_id())
    # The folder comes first. A folder without a row does no harm; a row whose script cannot be
    # written would be an intent that nobody can carry out.
    folder = _create_folder(context, intent, token, is_kept=intent.queue or deferred is not None)
    now = context.clock.now()
    submission = jobs.Submission(
        token=token,
        cluster=intent.cluster,
        scheduler="local" if context.is_local else "slurm",
        name=spec.name,
        script=intent.script,
        spec=specs.to_json(spec),
        run_dir=str(folder.path),
        provenance=intent.provenance,
        created_at=now,
    )
    state: dict[str, Any]
    if deferred is not None:
        state = {"state": jobs.JobState.NOT_SUBMITTED, "settled": True, **deferred}
    else:
        # If this process is killed before sbatch answers, the controller tries again then.
        state = {"submitter": processes.this_process()}
        if intent.queue:
            from orchestrator.slurm import deferral

            state["resend_at"] = deferral.after(1, context.profile, now)
    try:
        with context.store.writing(durable=True) as work:
            added = work.jobs.add_submission(
                submission,
                array_tasks=spec.array.task_ids if intent.tasks is None else intent.tasks,
                labels=spec.labels,
                sweep=intent.sweep,
                continues=intent.continues,
                recovers=spec.retry.is_on or None,
                partition=spec.partition or None,
                account=spec.account or None,
                qos=spec.qos or None,
                nodes=spec.resources.nodes,
                time_limit_seconds=values.seconds(spec.time_limit) if spec.time_limit else None,
                **state,
            )
            if depends:
                work.dependencies.add(added[0].row, depends)
            source = context.actor if intent.continues is None else "rules"
            event = context.event("submit", "intent stored", source=source, state=added[0].state)
            work.events.add_many((job.row, event) for job in added)
            intent.in_transaction(work, added)
    except errors.OrchestratorError as error:
        if not _may_be_stored(context, token, error):
            run_folder.remove(folder)
        raise
    return Stored(job=added[0], submission=submission, spec=spec, depends=depends)


def _deferral(
    context: contexts.Context, intent: Intent
) -> tuple[Sequence[dependency.Dependency], Mapping[str, object] | None]:
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
    depends = depends or ()
    if status.never:
        raise NeverError(f"the job could never start: {status.never[0]}. Nothing was submitted.")
    if intent.behind is not None:
        return depends, {"reason": intent.behind.reason, "resend_at": intent.behind.resend_at}
    if not status.unsent:
        return depends, None
    if context.is_local:
        raise errors.ConflictError(
            f"{status.unsent[0]}. A local job can only depend on jobs in this machine's queue. "
            "Nothing was submitted."
        )
    from orchestrator.slurm import deferral

    return depends, deferral.deferred(status.unsent[0], context.profile, context.clock.now())


def _create_folder(
    context: contexts.Context, intent: Intent, token: str, *, is_kept: bool
) -> run_folder.RunFolder:
    """Create the run folder; `is_kept`: the environment is stored in it."""
    spec = intent.spec
    names = [run_folder.ENVIRONMENT] if is_kept else []
    if spec.retry.is_on:
        names.append(run_folder.RETRY_ENVIRONMENT)
    files = {"script.sbatch": intent.script}
    hard_links: dict[str, Path] = {}
    if spec.code.tree is not None:
        # Few jobs have a snapshot, and this loads many modules.
        from orchestrator.controller.code import store

        archive = store.of(context).archive(spec.code.tree, intent.runs_dir)
        hard_links[run_folder.CODE_ARCHIVE] = archive
        paths = spec.code.folder or ".", *spec.code.python_paths
        files[run_folder.CODE_PATHS] = "".join(f"{path}\n" for path in paths)
    if intent.sweep is not None and spec.tracking.trackers:
        files[run_folder.SWEEP] = f"{intent.sweep}\n"
    if names:
        environ = stored_environment(context, spec.environment)
        files |= dict.fromkeys(names, json.dumps(environ))
    return run_folder.create(
        intent.runs_dir,
        spec.name,
        token,
        files,
        intent.links,
        hard_links=hard_links,
        copies={"spec.json": specs.to_json(spec), "provenance.json": intent.provenance},
        shared_folders=context.configuration.shared_folders,
    )


def stored_environment(
    context: contexts.Context,
    environment: jobs.Environment,
    *,
    reason: str = "the job may be submitted later",
    texts: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the variables to store for a job that starts when this shell may be gone.

    Reports those that are left out. reason: why they are stored, for the message. texts: the
    script and the program; only variables that they plausibly need are reported.
    """
    left_out: list[str] = []
    if environment.export == "all":
        left_out = variables.not_stored(
            context.environ, [*environment.inherit, *(environment.variables or ())]
        )
    if texts is not None:
        left_out = variables.needed(left_out, texts)
    if left_out:
        names = ", ".join([*left_out[:_NAMES_SHOWN], *["..."][: len(left_out) - _NAMES_SHOWN]])
        context.reporter.info(
            f"Variables of this shell that are not passed on ({reason}): {len(left_out)} "
            f"({names}); pass one with --inherit NAME"
        )
    return variables.stored(context.environ, environment.inherit)


def _may_be_stored(context: contexts.Context, token: str, error: errors.OrchestratorError) -> bool:
    """Return whether the intent may be stored: a server may be lost after its commit."""
    if not isinstance(error, errors.DatabaseError):
        return False
    try:
        with context.store.reading() as work:
            return work.jobs.submission(token) is not None
    except errors.DatabaseError:
        return True
