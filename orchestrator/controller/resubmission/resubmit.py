"""Submit a job again: one that Slurm never had, or a new job with the same script."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import errors, files, jobs, specs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.planning import agreement
from orchestrator.controller.prune import marks
from orchestrator.controller.resubmission import submitters
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import (
    dependencies,
    intents,
    job_scripts,
    provenance,
    sbatch_outcomes,
    submit,
)
from orchestrator.files import run_folder
from orchestrator.jobs import naming
from orchestrator.local import processes
from orchestrator.rendering import templates
from orchestrator.slurm import deferral


class BusyError(errors.ConflictError):
    """Another process is submitting the job; nothing was submitted."""


class WrongHostError(errors.ConflictError):
    """This host cannot submit the job now; nothing was submitted."""


class NotReadyError(errors.ConflictError):
    """Slurm does not have a dependency of the job yet; nothing was submitted."""


def resubmit(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    *,
    fresh: bool = False,
    queue: bool | None = False,
    argv: Sequence[str] = (),
) -> jobs.Job:
    """Submit one job, or some tasks of one array, again and return the (first) submitted job.

    NOT_SUBMITTED: the same row, token and run folder, so that the task lock in the script keeps a
    late copy from running; of an array, all tasks. Ended: a new submission with the same script, or
    with `fresh` a newly rendered one. With `queue` the job may be returned deferred; None: as the
    profile says. Raises ConflictError for a live job, and what submit.send raises.
    """
    if queue is None:
        queue = context.profile.queue_submissions
    context = context.with_scheduler(selected[0].scheduler)
    current = confirmed.refreshed(context, selected)
    for before, after in zip(selected, current, strict=True):
        _refuse_live(before, after)
    job = current[0]
    name = naming.name_of(job)
    if job.tracked_name is not None:
        raise errors.ConflictError(
            f"{name} was not submitted by orchestrator, so its options are not known. "
            f"`orchestrator show {name} --script >FILE.sbatch` prints its script if Slurm had it; "
            "`orchestrator submit FILE.sbatch` submits it."
        )
    if why := clusters.elsewhere(job, clusters.facts(context).cluster):
        raise errors.ConflictError(why)
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
    spec = specs.from_json(submission.spec)
    intents.check(context, spec, submission.script, advice=_without_dependency(job))
    if all(task.state is not jobs.JobState.NOT_SUBMITTED for task in current):
        return _submit_new(context, current, submission, fresh=fresh, queue=queue, argv=argv)
    if fresh:
        raise errors.ConflictError(
            f"@{job.row} was never submitted, so it is submitted with its stored script and token. "
            "For another script, use `orchestrator submit`."
        )
    return send_again(context, job, queue=queue or job.is_deferred)


def resubmit_each(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    *,
    fresh: bool = False,
    queue: bool | None = False,
    argv: Sequence[str] = (),
) -> Iterator[list[jobs.Job] | errors.OrchestratorError]:
    """Submit jobs of several submissions again, in the order of their rows.

    Yields for each submission the submitted job or tasks, or why it was not submitted.
    """
    agreement.on_change(
        context, "Resubmit", lambda: selected, objection=_live_objection, runs=True, submits=True
    )
    for tasks in naming.by_submission(sorted(selected, key=lambda job: job.row)):
        try:
            first = resubmit(context, tasks, fresh=fresh, queue=queue, argv=argv)
        except errors.OrchestratorError as error:
            yield error
        else:
            yield submit.tasks_of(context, first)


def _calling_folder(job: jobs.Job, submission: jobs.Submission) -> Path:
    folder = Path(submission.calling_folder)
    if not folder.is_dir() and specs.from_json(submission.spec).code.tree is None:
        # Another login node may have it: /scratch, /tmp.
        raise WrongHostError(
            f"{folder}, where {naming.name_of(job)} was submitted, does not exist. "
            "Create it, or use `orchestrator submit`."
        )
    return folder


def _without_dependency(job: jobs.Job) -> str:
    """Return what to do if a stored job depends on one that Slurm has forgotten."""
    return (
        "A stored job keeps its dependency. If the other job ended as required, submit this one "
        f"with `orchestrator submit`, without the dependency (`orchestrator show "
        f"{naming.name_of(job)}` shows its spec)."
    )


def _live_objection(job: jobs.Job) -> str:
    if job.state in jobs.TERMINAL:
        return ""
    name = naming.name_of(job)
    return (
        f"{name} is {job.state}; only a job that has ended, or that Slurm never had, can be "
        f"resubmitted. `orchestrator status {name}` shows it; `cancel` ends it, `requeue` "
        "restarts it."
    )


def _refuse_live(before: jobs.Job, job: jobs.Job) -> None:
    if objection := _live_objection(job):
        raise errors.ConflictError(objection)
    name = naming.name_of(job)
    unsure = (jobs.JobState.NOT_SUBMITTED, jobs.JobState.LOST)
    if before.state in unsure and job.state is not before.state:
        raise errors.ConflictError(
            f"@{job.row} was {before.state}, but Slurm has it: it is {name}, {job.state}. "
            f"`orchestrator resubmit {name}` submits it once more."
        )


def send_again(
    context: contexts.Context,
    job: jobs.Job,
    *,
    queue: bool,
    is_automatic: bool = False,
) -> jobs.Job:
    """Submit a job that is NOT_SUBMITTED, with its row, token, run folder and script.

    Any task stands for its whole array. queue: defer it if Slurm refuses it for now. is_automatic:
    not on a user's request, and not while another process submits a deferred job. Raises
    ConflictError if nothing was submitted (a later attempt may succeed after WrongHostError,
    NotReadyError and BusyError), and what submit.send raises.
    """
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
        depends = dependencies.of(work, job.row)
    folder = run_folder.RunFolder(Path(job.run_dir))
    if pruned := marks.note(context, job):
        raise errors.ConflictError(
            f"{pruned}, so it cannot be submitted with its token any more. Nothing was submitted. "
            f"`orchestrator show @{job.row} --script` and `--spec` print what was stored; "
            "`orchestrator submit` submits it as a new job."
        )
    if exposure := contexts.run_folder_exposure(context, folder.path):
        raise WrongHostError(f"{exposure} Nothing was submitted.")
    _calling_folder(job, submission)
    # `job` with the version that the caller has seen, not the stored one.
    tasks = [job if task.row == job.row else task for task in submit.tasks_of(context, job)]
    if any(task.job_id is not None for task in tasks):
        raise errors.ConflictError(
            f"Slurm has a task of the array of @{job.row}. Nothing was submitted."
        )
    owners = [owner for task in tasks if (owner := folder.owner(task.array_task_id or 0))]
    if owners:
        detail = f"job {owners[0]} has the task lock in the run folder"
        _change_tasks(context, tasks, {"settled": False}, detail, is_automatic=is_automatic)
        (current, *_) = confirmed.refreshed(context, tasks)
        raise errors.ConflictError(
            f"Slurm had @{job.row}: it ran as job {owners[0]} and is {current.state}. "
            "Nothing was submitted."
        )
    _check_script(folder, job, submission)
    _check_prerequisites(context, tasks)
    spec = specs.from_json(submission.spec)
    if is_automatic:
        # While the job was deferred, Slurm may have forgotten the jobs that it depends on.
        dependencies.check(context, spec.dependency, advice=_without_dependency(job))
    if queue and not is_automatic:
        folder.keep_environment(intents.stored_environment(context, spec.environment))
    elif queue and folder.environment() is None:
        # Another command that happens to refresh must not lend its environment.
        raise WrongHostError(
            f"{folder.path / run_folder.ENVIRONMENT}, the environment of the submission, cannot be "
            f"read; `orchestrator resubmit --queue @{job.row}` submits it with yours"
        )
    now = context.clock.now()
    changes = {
        **sbatch_outcomes.LIVE,
        "state": jobs.JobState.SUBMITTING,
        "submitter": processes.this_process(),
        "grace_since": now,
        "resend_at": deferral.after(job.refusals + 1, context.profile, now) if queue else None,
    }

    detail = "sent again, with the same token and folder"
    _change_tasks(context, tasks, changes, detail, is_automatic=is_automatic)
    stored = intents.Stored(job=job, submission=submission, spec=spec, depends=depends)
    return submit.send(context, stored, keep_deferred=True)


def _check_script(folder: run_folder.RunFolder, job: jobs.Job, submission: jobs.Submission) -> None:
    try:
        script = files.read_text(
            folder.script, limit_bytes=templates.SCRIPT_LIMIT_BYTES, errors="replace"
        )
    except OSError:
        raise WrongHostError(f"{folder.script} cannot be read. Nothing was submitted.") from None
    if script != submission.script:
        raise errors.ConflictError(
            f"{folder.script} differs from the script stored with @{job.row}. "
            "Nothing was submitted. Use `orchestrator submit`."
        )


def _check_prerequisites(context: contexts.Context, tasks: Sequence[jobs.Job]) -> None:
    job = tasks[0]
    with context.store.reading() as work:
        status = dependencies.status_of(work, job.row)
    if status.never:
        raise errors.ConflictError(f"it can never start: {status.never[0]}")
    if status.unsent:
        raise NotReadyError(status.unsent[0])
    if job.sweep is None:
        return
    # Few jobs belong to a sweep, and this loads many modules.
    from orchestrator.controller.sweeps import queries

    with context.store.reading() as work:
        # First, because the baseline of a cancelled sweep may never be submitted.
        _refuse_cancelled(work, job)
        baseline = queries.prerequisites_of(work, job.row, len(tasks))
    if baseline.failed:
        raise errors.ConflictError(f"{baseline.failed} baseline points of its sweep failed")
    if baseline.unsent:
        raise NotReadyError("the baseline of its sweep is not submitted yet, or may be retried")


def _refuse_cancelled(work: unit_of_work.UnitOfWork, job: jobs.Job) -> None:
    sweep = None if job.sweep is None else work.sweeps.cancelled_sweep_of(job.row)
    if sweep is not None:
        raise errors.ConflictError(
            f"its sweep {sweep.name} is cancelled: `orchestrator sweep resume @{sweep.row}` "
            "opens it again"
        )


def _change_tasks(
    context: contexts.Context,
    tasks: Sequence[jobs.Job],
    changes: dict[str, object],
    detail: str,
    *,
    is_automatic: bool,
) -> None:
    """Change the rows if nobody else has: of two processes only one submits."""
    state = changes.get("state", tasks[0].state)
    assert isinstance(state, jobs.JobState)
    with context.store.writing(durable=True) as work:
        if state is jobs.JobState.SUBMITTING:
            _refuse_cancelled(work, tasks[0])
        is_deferred = changes.get("resend_at") is not None
        if is_automatic and is_deferred and _another_submits(work, context.clock.now()):
            raise BusyError(
                f"Another process is submitting jobs now; @{tasks[0].row} stays deferred"
            )
        _change_unchanged(work, tasks, changes)
        source = "controller" if is_automatic else "user"
        event = context.event("submit", detail, source=source, state=state)
        work.events.add_many((job.row, event) for job in tasks)


def _another_submits(work: unit_of_work.UnitOfWork, now: datetime.datetime) -> bool:
    query = jobs.JobQuery(deferred=True, states=(jobs.JobState.SUBMITTING,), limit=None)
    return any(submitters.is_submitting(job, now) for job in work.jobs.find(query))


def _change_unchanged(
    work: unit_of_work.UnitOfWork, tasks: Sequence[jobs.Job], changes: dict[str, object]
) -> None:
    changed = work.jobs.change_many([(job.row, changes, job.version) for job in tasks])
    for job in tasks:
        if job.row not in changed:
            raise BusyError(
                f"Another process changed @{job.row} just now. Nothing was submitted. "
                f"`orchestrator status @{job.row}` shows it."
            )


def _submit_new(
    context: contexts.Context,
    tasks: Sequence[jobs.Job],
    submission: jobs.Submission,
    *,
    fresh: bool,
    queue: bool,
    argv: Sequence[str],
) -> jobs.Job:
    job = tasks[0]
    if pruned := marks.note(context, job):
        context.reporter.info(f"Note: {pruned}; its script and spec are taken from the database.")
    record: dict[str, Any] = json.loads(submission.provenance)
    spec = specs.from_json(submission.spec)
    request = job_scripts.Request(spec=spec, source=str(record["spec"]), argv=argv)
    if fresh:
        rendered = job_scripts.render(context.configuration, request, is_local=context.is_local)
        script, template = rendered.text, (rendered.template, rendered.template_hash)
        runs_dir = context.configuration.runs_dir
    else:
        # The stored script looks for its run folder in the folder that it was rendered for.
        script, runs_dir = submission.script, Path(job.run_dir).parent
        template = str(record["template"]), str(record["template_sha256"])

    def link_to_old(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        pairs = [(old.row, new.row) for old, new in zip(tasks, added, strict=True)]
        _change_unchanged(work, tasks, {})
        work.recovery.withdraw([old for old, _ in pairs], "it was resubmitted by hand")
        if job.sweep is not None:
            work.sweeps.replace_jobs(pairs)
        for old, new in pairs:
            for row, detail in ((old, f"resubmitted as @{new}"), (new, f"resubmits @{old}")):
                work.events.add(row, context.event("resubmit", detail))

    with context.store.reading() as work:
        depends = dependencies.of(work, job.row)
    intent = intents.Intent(
        spec=spec,
        script=script,
        provenance=provenance.collect(
            context, request, template=template, folder=_calling_folder(job, submission)
        ),
        cluster=job.cluster,
        runs_dir=runs_dir,
        queue=queue,
        depends=depends,
        # The script has all tasks; --array on sbatch's command line selects these.
        tasks=None if job.array_task_id is None else [task.array_task_id or 0 for task in tasks],
        sweep=job.sweep,
        in_transaction=link_to_old,
    )
    new = intents.store(context, intent)
    return new.job if new.job.is_deferred else submit.send(context, new)
