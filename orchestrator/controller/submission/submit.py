"""submit: a spec becomes one job in Slurm, and never two (design section 3, "Submit").

Without Slurm the same, with this machine in its place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orchestrator
from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.metrics import log_paths
from orchestrator.controller.refresh import refresh
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import (
    dependencies,
    environments,
    local_jobs,
    provenance,
    render,
    sbatch_call,
    sbatch_outcomes,
    submitit,
)
from orchestrator.jobs import dependency
from orchestrator.local import kernel_clock, processes
from orchestrator.rendering import batch_file
from orchestrator.slurm import process
from orchestrator.toml import values
from orchestrator.tracking import run_folder

#: An intent is given up by nobody before this time after it began to be stored: three good
#: answers of squeue, and the grace (1 s at the least), pass first (tracking.adopting).
_UNTOUCHED_SECONDS = 1.0


class OvertakenError(errors.ConflictError):
    """Another process took this one for dead, and judged the submission; nothing was submitted."""


class NeverError(errors.ConflictError):
    """What it waits for will never be as it wants it; nothing was submitted."""


def _nothing_more(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
    return


def submit(
    context: contexts.Context,
    request: render.Request,
    *,
    queue: bool = False,
    depends: Sequence[dependency.Dependency] | None = None,
    with_it: Callable[[unit_of_work.UnitOfWork, Sequence[jobs.Job]], None] = _nothing_more,
) -> jobs.Job:
    """Store the intent, call sbatch, store its answer; returns the job as it is known then.

    Of an array it is the first task: tasks_of() returns all of them. `depends`: what it waits for;
    none: what its spec names. `with_it` joins the transaction of the intent.

    `queue`: one that Slurm refuses for now is returned as it waits (Job.is_deferred). Else
    raises SlurmError (exit 5) when Slurm refused it, is away, or may or may not have it:
    the message then names the row, and refreshes go on looking for it.
    """
    here = render.is_local(context.configuration, context.environ)
    context = context.with_scheduler("local" if here else "slurm")
    script = render.make(context.configuration, request, on_this_machine=context.is_local)
    facts = clusters.facts(context)
    render.refuse_too_many_tasks(request, facts)
    local_jobs.check(context, request.spec, script.text)
    papers = papers_of(context, request, template=(script.template, script.template_hash))
    storing_at = kernel_clock.boot_seconds()
    job, folder = store_intent(
        context,
        request.spec,
        script.text,
        papers,
        cluster=facts.cluster,
        runs_dir=context.configuration.runs_dir,
        # A machine's line has room for all.
        queue=queue and not context.is_local,
        depends=depends,
        with_it=with_it,
    )
    if job.is_deferred:
        return job
    _, named = dependency.split(request.spec.dependency)
    # Whoever waits for nothing has nothing to be told by what is stored; on this machine there
    # is no grace.
    stored_at = None if named or depends or context.is_local else storing_at
    return send(context, request.spec, job, folder, stored_at=stored_at)


def send(
    context: contexts.Context,
    spec: jobs.JobSpec,
    job: jobs.Job,
    folder: run_folder.RunFolder,
    *,
    calling_folder: str | None = None,
    again: bool = False,
    stored_at: float | None = None,
) -> jobs.Job:
    """Call sbatch for a stored intent, in `calling_folder` if not here, and store its answer.

    `again`: what waits for room goes on waiting where sbatch cannot even be started. `stored_at`:
    when (seconds since boot) this process stored the whole intent of what waits for nothing.
    Returns the job that Slurm has, or that waits for room.
    """
    tasks: Sequence[int | None] = spec.array.task_ids or [None]
    text, may_be_recovered = "", False
    if stored_at is None or kernel_clock.boot_seconds() - stored_at > _UNTOUCHED_SECONDS:
        with context.store.reading() as work:
            sent = work.jobs.tasks(job.token)
            text = dependencies.text(work, spec, job)
            may_be_recovered = bool(text) and dependencies.may_be_recovered(work, spec, job)
        _refuse_given_up(job, sent)
        tasks = [one.array_task_id for one in sent]
    try:
        if context.is_local:
            own, _ = dependency.split(spec.dependency)
            sent_spec = dataclasses.replace(spec, dependency=text or own)
            job_id = local_jobs.enter(context, sent_spec, job, folder, calling_folder)
        else:
            options = sbatch_call.options(
                spec, tasks, dependency=text, may_be_recovered=may_be_recovered
            )
            job_id = _call_sbatch(context, spec, job, folder, calling_folder, options)
    except submitit.RefusedError as exc:
        kept = sbatch_outcomes.store_refusal(context, job, exc.outcome)
        if kept.is_deferred:
            return kept
        raise errors.SlurmError(
            f"{exc.outcome.sentence} ({sbatch_outcomes.kept(job, exc.outcome)})"
        ) from exc
    except submitit.UnknownOutcomeError as exc:
        return sbatch_outcomes.look_for(context, job, exc.outcome)
    except errors.OrchestratorError as exc:
        # The command could not even be started, or this machine refused: nothing was sent.
        sbatch_outcomes.store_unsent(context, job, str(exc), again=again)
        raise
    except KeyboardInterrupt:
        # The row stays SUBMITTING; that this process ended is seen by the next refresh.
        context.reporter.warn(
            f"sbatch was interrupted: Slurm may or may not have the job; it is @{job.row}. "
            f"`orchestrator status @{job.row}` looks for it and says which it is."
        )
        raise
    places = log_paths.LogPaths.of_spec(calling_folder or context.folder, spec, job.run_dir)
    return sbatch_outcomes.store_job_id(context, job, job_id, places)


def tasks_of(context: contexts.Context, job: jobs.Job) -> list[jobs.Job]:
    """Return all jobs of the job's submission, an array's tasks in their order."""
    with context.store.reading() as work:
        return work.jobs.of_submissions([job.token])


def _refuse_given_up(job: jobs.Job, found: Sequence[jobs.Task]) -> None:
    if any(one.state is not jobs.JobState.SUBMITTING for one in found):
        # This process was stopped for so long that a refresh took it for dead.
        raise OvertakenError(
            f"@{job.row} was given up meanwhile by another process; nothing was submitted"
        )


def test_only(context: contexts.Context, request: render.Request) -> str:
    """Return Slurm's estimate of when and where the job would start; nothing is submitted."""
    here = render.is_local(context.configuration, context.environ)
    script = render.render(context.configuration, request, on_this_machine=here)
    if here:
        return local_jobs.estimate(context, request.spec, script)
    return context.slurm.test_only(script, batch_file.options_of(request.spec))


def papers_of(
    context: contexts.Context,
    request: render.Request,
    *,
    template: tuple[str, str],
    folder: Path | None = None,
    git: provenance.Git | None = None,
) -> str:
    """Return the papers of a submission called in `folder` (none: here), as JSON.

    `template`: name and hash of what the script was rendered from. `git` runs git there; of several
    submissions at once one that remembers its answers.
    """
    called_in = context.folder if folder is None else folder
    with context.reporter.activity("Looking at the working tree (git)"):
        return provenance.collect(
            version=orchestrator.__version__,
            argv=request.argv,
            spec_source=request.source,
            template=template[0],
            template_hash=template[1],
            folder=called_in,
            git=git or provenance.git_in(called_in),
        )


def store_intent(
    context: contexts.Context,
    spec: jobs.JobSpec,
    script: str,
    papers: str,
    *,
    cluster: str,
    runs_dir: Path,
    queue: bool = False,
    behind: jobs.Job | None = None,
    depends: Sequence[dependency.Dependency] | None = None,
    tasks: Sequence[int] | None = None,
    sweep: str | None = None,
    continues: int | None = None,
    links: Mapping[str, Path] | None = None,
    with_it: Callable[[unit_of_work.UnitOfWork, Sequence[jobs.Job]], None] = _nothing_more,
) -> tuple[jobs.Job, run_folder.RunFolder]:
    """Make a run folder for a new submission, and a row for the job or for each array task.

    `queue`: should Slurm not take it now, it is sent again by itself; `behind` another that waits
    for the same room it waits from the start. `depends`: what it waits for; none: what its spec
    names. What Slurm does not have yet makes it wait too. `tasks`: those of an array that are
    sent; none: all of the spec. `sweep` is the name of theirs. `continues`: row of the job that it
    goes on with; `links` stand in its folder. `with_it` joins the
    transaction. Returns the first of the jobs.
    """
    tasks = spec.array.task_ids if tasks is None else tasks
    _, named = dependency.split(spec.dependency)
    status = dependency.Status()
    if named or depends:
        # Slurm may have forgotten how a job ended that runs here still.
        refresh.refresh(context)
        with context.store.reading() as work:
            if depends is None:
                depends = dependencies.resolve(work, named)
            status = dependencies.status(work, depends)
    waits = _why_it_waits(context, behind, status)
    queue = queue or waits is not None
    with context.store.reading() as work:
        token = run_folder.new_token(work.settings.installation_id())
    spec_json = specs.to_json(spec)
    # The folder comes first: a folder without a row is harmless, a row whose script cannot be
    # written would be an intent that nothing can fulfil.
    files = {"script.sbatch": script}
    copies = {"spec.json": spec_json, "provenance.json": papers}
    environ = environments.sent(context, spec)
    if queue:
        environ = environments.stored(context, spec.environment, reason="it may be sent later")
        files[run_folder.ENVIRONMENT] = json.dumps(environ)
    if spec.retry.is_on:
        kept = environments.stored(context, spec.environment, reason="to a job that goes on")
        files[run_folder.RETRY_ENVIRONMENT] = json.dumps(kept)
    folder = run_folder.create(
        runs_dir,
        spec.name,
        token,
        files,
        links or {},
        copies=copies,
        shared_folders=context.configuration.shared_folders,
    )
    record = jobs.Submission(
        token=token,
        cluster=cluster,
        scheduler="local" if context.is_local else "slurm",
        name=spec.name,
        script=script,
        spec=spec_json,
        run_dir=str(folder.path),
        provenance=papers,
        created_at=context.clock.now(),
    )
    try:
        with context.store.writing(durable=True) as work:
            added = work.jobs.add_submission(
                record,
                array_tasks=tasks,
                labels=spec.labels,
                sweep=sweep,
                continues=continues,
                recovers=spec.retry.is_on or None,
                submitter=None if waits else processes.this_process(),
                partition=spec.partition,
                account=spec.account,
                qos=spec.qos,
                nodes=spec.resources.nodes,
                time_limit_seconds=values.seconds(spec.time_limit) if spec.time_limit else None,
                **_wait_for_room(context, queue, waits),
            )
            if depends:
                work.dependencies.add(added[0].row, depends)
            source = context.actor if continues is None else "rules"
            stored = sbatch_outcomes.event(context, "intent stored", added[0].state, source)
            work.events.add_many((job.row, stored) for job in added)
            with_it(work, added)
    except errors.OrchestratorError as exc:
        if not _may_be_stored(context, token, exc):
            run_folder.remove(folder)
        raise
    return added[0], folder


def _may_be_stored(context: contexts.Context, token: str, error: errors.OrchestratorError) -> bool:
    """Return whether the intent may be in the database: a server may be lost after its commit."""
    if not isinstance(error, errors.DatabaseError):
        return False
    try:
        with context.store.reading() as work:
            return work.jobs.submission(token) is not None
    except errors.DatabaseError:
        return True


def _why_it_waits(
    context: contexts.Context, behind: jobs.Job | None, status: dependency.Status
) -> dict[str, Any] | None:
    """Return reason and time of the next try of what is not sent now; none: it is sent.

    NeverError for what can never start.
    """
    if status.never:
        raise NeverError(f"it could never start: {status.never[0]}. Nothing was submitted.")
    if behind is not None:
        return {"reason": behind.reason, "resend_at": behind.resend_at}
    if not status.unsent:
        return None
    if context.is_local:
        raise errors.ConflictError(
            f"{status.unsent[0]}: jobs on this machine wait for what is in its line alone. "
            "Nothing was submitted."
        )
    return submit_limit.before_its_turn(status.unsent[0], context.profile, context.clock.now())


def _wait_for_room(
    context: contexts.Context, queue: bool, waits: dict[str, Any] | None
) -> dict[str, Any]:
    if waits is not None:
        return {"state": jobs.JobState.NOT_SUBMITTED, "settled": True, **waits}
    return {
        "resend_at": submit_limit.after(1, context.profile, context.clock.now()) if queue else None
    }


def _call_sbatch(
    context: contexts.Context,
    spec: jobs.JobSpec,
    job: jobs.Job,
    folder: run_folder.RunFolder,
    calling_folder: str | None,
    options: Sequence[str],
) -> str:
    environ = folder.environment() or environments.sent(context, spec)

    def run(argv: Sequence[str]) -> process.Result:
        with context.reporter.activity("Submitting (sbatch)"):
            # After all that may take long: who was stopped for minutes finds it out here.
            context.guard.confirm_lease()
            return process.run(
                argv,
                timeout_seconds=context.slurm.sbatch_timeout_seconds,
                environ=environ,
                die_with_parent=True,
                folder=calling_folder,
            )

    return submitit.submit(
        folder.script,
        command=sbatch_call.command(spec, folder, job.name, job.token, options),
        run=run,
    )
