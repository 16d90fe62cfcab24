"""Submit a job exactly once: store the intent, call sbatch, store the outcome (docs/design.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import errors, jobs
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import (
    dependencies,
    intents,
    job_scripts,
    log_paths,
    provenance,
    sbatch_call,
    sbatch_outcomes,
)
from orchestrator.jobs import dependency
from orchestrator.slurm import sbatch


class OvertakenError(errors.ConflictError):
    """Another process took this one for dead and gave the submission up; nothing was submitted."""


def submit(
    context: contexts.Context,
    request: job_scripts.Request,
    *,
    queue: bool = False,
    depends: Sequence[dependency.Dependency] | None = None,
    in_transaction: intents.InTransaction = intents.nothing,
) -> jobs.Job:
    """Submit to Slurm, or to this machine, and return the (first) job.

    queue, depends, in_transaction: see intents.Intent. With `queue` the job may be returned
    deferred (Job.is_deferred). Otherwise raises SlurmError if Slurm refuses the job, does not
    answer, or may have the job: the message then names the row, and refreshes look for the job.
    """
    is_local = job_scripts.is_local(context.configuration, context.environ)
    context = context.with_scheduler("local" if is_local else "slurm")
    script = job_scripts.render(context.configuration, request, is_local=is_local)
    facts = clusters.facts(context)
    job_scripts.refuse_too_many_tasks(request, facts)
    intents.check(context, request.spec, script.text)
    if context.guard.approve is not None:
        # Few commands are planned, and `submit` loads few modules.
        from orchestrator.controller.planning import agreement

        agreement.on_request(context, request, script.text)
    intent = intents.Intent(
        spec=request.spec,
        script=script.text,
        provenance=provenance.collect(
            context, request, template=(script.template, script.template_hash)
        ),
        cluster=facts.cluster,
        runs_dir=context.configuration.runs_dir,
        # A local queue has no limit.
        queue=queue and not is_local,
        depends=depends,
        in_transaction=in_transaction,
    )
    stored = intents.store(context, intent)
    return stored.job if stored.job.is_deferred else send(context, stored)


def submit_requested(
    context: contexts.Context,
    request: job_scripts.Request,
    *,
    queue: bool | None = None,
    is_moved: bool = False,
) -> list[jobs.Job]:
    """Take the snapshot that the spec requests, submit, and return the job or the array tasks.

    queue: see submit(); None: the profile's queue_submissions. is_moved: a stored spec runs in
    another folder than before, so that the place in its snapshot is looked up again.
    """
    if request.spec.code.is_due or is_moved:
        # Few jobs have a snapshot, and this loads many modules.
        from orchestrator.controller.code import snapshots

        request = snapshots.request_taken(context, request)
    if queue is None:
        queue = context.profile.queue_submissions
    return tasks_of(context, submit(context, request, queue=queue))


def send(
    context: contexts.Context, stored: intents.Stored, *, keep_deferred: bool = False
) -> jobs.Job:
    """Call sbatch for a stored intent and store the outcome; return the job.

    keep_deferred: a job that was deferred stays so if sbatch cannot even be started.
    """
    job, submission, spec = stored.job, stored.submission, stored.spec
    with context.store.reading() as work:
        tasks = work.jobs.tasks(job.token)
        status = dependencies.status(work, stored.depends)
        text = dependencies.text(work, spec, job, status)
    if any(task.state is not jobs.JobState.SUBMITTING for task in tasks):
        # This process was suspended for so long that a refresh took it for dead.
        raise OvertakenError(
            f"Another process gave @{job.row} up meanwhile. Nothing was submitted."
        )
    try:
        if context.is_local:
            from orchestrator.controller.submission import local_jobs

            own, _ = dependency.split(spec.dependency)
            local_spec = dataclasses.replace(spec, dependency=text or own)
            job_id = local_jobs.submit(context, local_spec, job, submission)
        else:
            options = sbatch_call.options(
                spec,
                [task.array_task_id for task in tasks],
                dependency=text,
                may_be_recovered=status.is_recovered
                or (job.sweep is not None and spec.retry.is_on),
            )
            job_id = _call_sbatch(context, stored, options)
    except sbatch_call.NotAcceptedError as error:
        if error.outcome.kind is sbatch.OutcomeKind.AMBIGUOUS:
            return sbatch_outcomes.look_for(context, job, error.outcome)
        return sbatch_outcomes.store_refusal(context, job, error.outcome)
    except errors.OrchestratorError as error:
        # sbatch could not be started, or this machine refused the job.
        sbatch_outcomes.store_unsent(context, job, str(error), keep_deferred=keep_deferred)
        raise
    except KeyboardInterrupt:
        # The job stays SUBMITTING; the next refresh sees that this process ended.
        context.reporter.warn(
            f"sbatch was interrupted, so Slurm may or may not have the job. It is @{job.row}: "
            f"`orchestrator status @{job.row}` looks for it in Slurm."
        )
        raise
    paths = log_paths.LogPaths.of_submission(submission, spec)
    return sbatch_outcomes.store_job_id(context, job, job_id, paths)


def _call_sbatch(context: contexts.Context, stored: intents.Stored, options: Sequence[str]) -> str:
    """Return the job ID; raises what sbatch_call.submit() raises."""
    job, submission, spec = stored.job, stored.submission, stored.spec
    if not _may_exclude(context, spec):
        return sbatch_call.submit(context, spec, job, submission, options)
    # Few jobs exclude nodes, and this loads many modules.
    from orchestrator.controller.nodes import exclusion

    excluded = exclusion.of(context, spec, submission.script, job.cluster)
    words = exclusion.applied(context, job, excluded, options)
    try:
        return sbatch_call.submit(context, spec, job, submission, words)
    except sbatch_call.NotAcceptedError as error:
        if not excluded.added or not error.outcome.has_no_nodes:
            raise
    excluded = dataclasses.replace(excluded, are_needed=True)
    words = exclusion.applied(context, job, excluded, options)
    return sbatch_call.submit(context, spec, job, submission, words)


def _may_exclude(context: contexts.Context, spec: jobs.JobSpec) -> bool:
    is_automatic = context.configuration.nodes.exclude == "auto"
    return is_automatic or spec.exclude is not None or "exclude" in spec.sbatch


def tasks_of(context: contexts.Context, job: jobs.Job) -> list[jobs.Job]:
    """Return all jobs of the job's submission, in the order of the array."""
    with context.store.reading() as work:
        return work.jobs.of_submissions([job.token])


def test_only(context: contexts.Context, request: job_scripts.Request) -> str:
    """Return an estimate of when and where the job would start; nothing is submitted."""
    is_local = job_scripts.is_local(context.configuration, context.environ)
    script = job_scripts.render(context.configuration, request, is_local=is_local).text
    if is_local:
        from orchestrator.controller.submission import local_jobs

        return local_jobs.estimate(context, request.spec, script)
    options = sbatch_call.batch_file_options(request.spec)
    if _may_exclude(context, request.spec):
        from orchestrator.controller.nodes import exclusion

        cluster = clusters.facts(context).cluster
        excluded = exclusion.of(context, request.spec, script, cluster)
        try:
            return context.slurm.test_only(script, excluded.over(options))
        except errors.SlurmError as error:
            if not excluded.added or not sbatch.has_no_nodes(str(error)):
                raise
        # As in a submission.
        options = dataclasses.replace(excluded, are_needed=True).over(options)
    return context.slurm.test_only(script, options)
