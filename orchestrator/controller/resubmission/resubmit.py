"""resubmit: what Slurm never got is sent again; what has ended becomes a new job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import errors, files, jobs, specs
from orchestrator.controller.actions import confirmed
from orchestrator.controller.resubmission import submit_limit
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import (
    dependencies,
    environments,
    local_jobs,
    render,
    sbatch_outcomes,
    submit,
)
from orchestrator.jobs import naming
from orchestrator.local import processes
from orchestrator.rendering import templates
from orchestrator.tracking import run_folder


class BusyError(errors.ConflictError):
    """Another process is at it; nothing was sent."""


class NotFromHereError(errors.ConflictError):
    """It cannot be sent from this host, or not at this moment; nothing was sent."""


class BeforeItsTurnError(errors.ConflictError):
    """What it waits for is not there yet, for whatever host; nothing was sent."""


def resubmit(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    *,
    fresh: bool = False,
    queue: bool = False,
    argv: Sequence[str] = (),
) -> jobs.Job:
    """Return the job that was sent, or with `queue` one that waits for room.

    `wanted` is of one submission: the one job, or some tasks of its array. Of several tasks the
    first is returned, submit.tasks_of() returns all.

    NOT_SUBMITTED: the same row, token and folder, so that the claim in the script keeps a late
    ghost from running beside it; of an array any task stands for all. Ended: a new submission, with
    the same script, or with `fresh` one rendered anew from the stored spec. Raises ConflictError
    for a job that is live, and what submit.send raises.
    """
    context = context.with_scheduler(wanted[0].scheduler)
    found = confirmed.look(context, wanted)
    for before, after in zip(wanted, found, strict=True):
        _refuse_live(before, after)
    now = found[0]
    if now.tracked_name is not None:
        name = naming.name_of(now)
        raise errors.ConflictError(
            f"{name} was submitted by hand, and how is not known well enough to do it again; "
            f"`orchestrator show {name} --script >FILE.sbatch` gives its script where Slurm had "
            "it, and `orchestrator submit FILE.sbatch` submits one"
        )
    facts = clusters.facts(context)
    if now.cluster != facts.cluster:
        raise errors.ConflictError(
            f"{naming.name_of(now)} was of cluster {now.cluster} and this host is of "
            f"{facts.cluster}; resubmit it on a login host of that cluster"
        )
    with context.store.reading() as work:
        stored = work.jobs.submission_of(now.row)
    assert stored is not None, "each job belongs to one (foreign key)"
    spec = specs.from_json(stored.spec)
    local_jobs.check(context, spec, stored.script, cure=without_dependency(now))
    papers: dict[str, Any] = json.loads(stored.provenance)
    _calling_folder(now, papers)
    if any(one.state is jobs.JobState.NOT_SUBMITTED for one in found):
        if fresh:
            raise errors.ConflictError(
                f"@{now.row} was never submitted and is sent again as it is, with its token; "
                "for another script use `orchestrator submit`"
            )
        return send_again(context, now, queue=queue or now.is_deferred)
    return _send_anew(context, found, stored, papers, fresh=fresh, queue=queue, argv=argv)


def _calling_folder(job: jobs.Job, papers: dict[str, Any]) -> str:
    folder = str(papers["folder"])
    if not Path(folder).is_dir():
        # Another login host may have it: /scratch, /tmp.
        raise NotFromHereError(
            f"{folder}, where {naming.name_of(job)} was submitted, is gone; "
            "make it again, or use `orchestrator submit`"
        )
    return folder


def without_dependency(job: jobs.Job) -> str:
    """Return what to do where a stored job depends on one that Slurm has forgotten."""
    return (
        f"It can only be sent as it was: if that end will do, submit it anew with `orchestrator "
        f"submit`, without the dependency (`orchestrator show {naming.name_of(job)}` names its "
        "spec)."
    )


def _refuse_live(job: jobs.Job, now: jobs.Job) -> None:
    name = naming.name_of(now)
    if now.state not in jobs.TERMINAL:
        hint = f"`orchestrator requeue {name}` starts one that runs again"
        if now.job_id is None:
            hint = f"`orchestrator status {name}` finds out whether Slurm has it"
        elif now.state is jobs.JobState.PENDING:
            hint = f"`orchestrator cancel {name}` ends it first"
        raise errors.ConflictError(
            f"{name} is {now.state}: only a job that has ended, or that Slurm never got, can be "
            f"resubmitted; {hint}"
        )
    unsure = (jobs.JobState.NOT_SUBMITTED, jobs.JobState.LOST)
    if job.state in unsure and now.state is not job.state:
        raise errors.ConflictError(
            f"@{now.row} was {job.state}, and is found now: it is {name} {now.state}. "
            f"`orchestrator resubmit {name}` sends it once more"
        )


def send_again(
    context: contexts.Context,
    job: jobs.Job,
    *,
    queue: bool,
    may: Callable[[unit_of_work.UnitOfWork], bool] = lambda work: True,
    source: str = "user",
) -> jobs.Job:
    """Send what is NOT_SUBMITTED, with its row, token, folder and script.

    Of an array any one task stands for all. `queue`: it waits for room if Slurm refuses it for now.
    `may` is asked in the transaction that takes the rows. Raises ConflictError where nothing was
    sent: NotFromHereError, BeforeItsTurnError, BusyError where a later try may do better. And
    what submit.send raises.
    """
    with context.store.reading() as work:
        stored = work.jobs.submission_of(job.row)
    assert stored is not None, "each job belongs to one (foreign key)"
    folder = run_folder.RunFolder(Path(job.run_dir))
    if exposed := contexts.run_folder_exposure(context, folder.path):
        raise NotFromHereError(f"{exposed} Nothing was sent.")
    spec = specs.from_json(stored.spec)
    calling_folder = _calling_folder(job, json.loads(stored.provenance))
    # Of an array all tasks are sent; the caller's view of its job is the one that is guarded.
    wanted = [job if one.row == job.row else one for one in submit.tasks_of(context, job)]
    if any(one.job_id is not None for one in wanted):
        raise errors.ConflictError(
            f"@{job.row} is a task of an array that Slurm had after all; nothing was sent"
        )
    owners = [owner for one in wanted if (owner := folder.owner(one.array_task_id or 0))]
    if owners:
        detail = f"job {owners[0]} has claimed the run folder"
        _take_up(context, wanted, {"settled": False}, detail, source=source)
        (found, *_) = confirmed.look(context, wanted)
        raise errors.ConflictError(
            f"Slurm had @{job.row} after all: it ran as {owners[0]} and is {found.state}; "
            "nothing was sent"
        )
    script = _text(folder.script)
    if script is None:
        raise NotFromHereError(f"{folder.script} cannot be read; nothing was sent")
    if script != stored.script:
        raise errors.ConflictError(
            f"{folder.script} is not the script that was stored with @{job.row}; "
            "nothing was sent: use `orchestrator submit`"
        )
    _refuse_before_its_turn(context, wanted)
    if queue and source == "user":
        kept = environments.stored(context, spec.environment, reason="it may be sent later")
        folder.keep_environment(kept)
    elif queue and folder.environment() is None:
        # Who merely looks at jobs lends them no environment.
        raise NotFromHereError(
            f"{folder.path / run_folder.ENVIRONMENT}, the environment of its submission, cannot be "
            f"read; `orchestrator resubmit --queue @{job.row}` sends it with yours"
        )
    now = context.clock.now()
    changes = {
        **sbatch_outcomes.FOUND,
        "state": jobs.JobState.SUBMITTING,
        "submitter": processes.this_process(),
        "grace_since": now,
        "resend_at": submit_limit.after(job.refusals + 1, context.profile, now) if queue else None,
    }
    detail = "sent again, with the same token and folder"

    def may_now(work: unit_of_work.UnitOfWork) -> bool:
        # Asked here too, for it may have been cancelled since the job was looked at.
        _refuse_cancelled(work, job)
        return may(work)

    _take_up(context, wanted, changes, detail, source=source, may=may_now)
    return submit.send(context, spec, job, folder, calling_folder=calling_folder, again=True)


def _refuse_before_its_turn(context: contexts.Context, wanted: Sequence[jobs.Job]) -> None:
    job = wanted[0]
    with context.store.reading() as work:
        status = dependencies.status_of(work, job.row)
    if status.never:
        raise errors.ConflictError(f"it can never start: {status.never[0]}")
    if status.unsent:
        raise BeforeItsTurnError(status.unsent[0])
    if job.sweep is None:
        return
    # Loads all of sweeps.
    from orchestrator.controller.sweeps import queries

    with context.store.reading() as work:
        # First: of a cancelled sweep the baseline may never be submitted.
        _refuse_cancelled(work, job)
        before = queries.prerequisites_of(work, job.row, len(wanted))
    if before.failed:
        raise errors.ConflictError(
            f"{before.failed} points of its sweep's baseline did not end well"
        )
    if before.unsent:
        raise BeforeItsTurnError("its sweep's baseline is not in Slurm yet, or is to go on")


def _refuse_cancelled(work: unit_of_work.UnitOfWork, job: jobs.Job) -> None:
    sweep = None if job.sweep is None else work.sweeps.cancelled_sweep_of(job.row)
    if sweep is not None:
        raise errors.ConflictError(
            f"its sweep {sweep.name} is cancelled: `orchestrator sweep resume @{sweep.row}` "
            "opens it again"
        )


def _take_up(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    changes: dict[str, object],
    detail: str,
    *,
    source: str,
    may: Callable[[unit_of_work.UnitOfWork], bool] = lambda work: True,
) -> None:
    """Change the rows if they are still as we saw them: of two processes only one sends."""
    with context.store.writing(durable=True) as work:
        if not may(work):
            raise BusyError(f"another process sends at this moment; @{wanted[0].row} waits")
        _guard(work, wanted, changes)
        state = changes.get("state", wanted[0].state)
        assert isinstance(state, jobs.JobState)
        told = sbatch_outcomes.event(context, detail, state, source)
        work.events.add_many((job.row, told) for job in wanted)


def _guard(
    work: unit_of_work.UnitOfWork, wanted: Sequence[jobs.Job], changes: dict[str, object]
) -> None:
    changed = work.jobs.change_many([(job.row, changes, job.version) for job in wanted])
    for job in wanted:
        if job.row in changed:
            continue
        raise BusyError(
            f"@{job.row} was changed by another process just now; look at it with "
            f"`orchestrator status @{job.row}`; nothing was sent"
        )


def _send_anew(
    context: contexts.Context,
    wanted: Sequence[jobs.Job],
    stored: jobs.Submission,
    papers: dict[str, Any],
    *,
    fresh: bool,
    queue: bool,
    argv: Sequence[str],
) -> jobs.Job:
    job = wanted[0]
    request = render.Request(
        spec=specs.from_json(stored.spec), source=str(papers["spec"]), argv=argv
    )
    if fresh:
        made = render.make(context.configuration, request, on_this_machine=context.is_local)
        script, template = made.text, (made.template, made.template_hash)
        runs_dir = context.configuration.runs_dir
    else:
        # The stored script looks for its folder where it was rendered to.
        script, runs_dir = stored.script, Path(job.run_dir).parent
        template = str(papers["template"]), str(papers["template_sha256"])
    folder = str(papers["folder"])
    new_papers = submit.papers_of(context, request, template=template, folder=Path(folder))

    def tell_both(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        _guard(work, wanted, {})
        work.recovery.withdraw([old.row for old in wanted], "it was resubmitted by hand")
        if job.sweep is not None:
            # Its points follow, as they do in `sweep rerun`.
            pairs = zip(wanted, added, strict=True)
            work.sweeps.replace_jobs([(old.row, new.row) for old, new in pairs])
        at = context.clock.now()
        told = [
            pair
            for old, new in zip(wanted, added, strict=True)
            for pair in (
                (old.row, f"resubmitted as @{new.row}"),
                (new.row, f"resubmits @{old.row}"),
            )
        ]
        work.events.add_many(
            (row, jobs.JobEvent(at=at, kind="resubmit", source="user", detail=detail))
            for row, detail in told
        )

    with context.store.reading() as work:
        depends = [stored.dependency for stored in work.dependencies.of(job.row)]
    new, new_folder = submit.store_intent(
        context,
        request.spec,
        script,
        new_papers,
        cluster=job.cluster,
        runs_dir=runs_dir,
        queue=queue,
        # The script knows all tasks; --array on sbatch's command line names those that are sent.
        tasks=None if job.array_task_id is None else [one.array_task_id or 0 for one in wanted],
        sweep=job.sweep,
        depends=depends,
        with_it=tell_both,
    )
    if new.is_deferred:
        return new
    return submit.send(context, request.spec, new, new_folder, calling_folder=folder)


def _text(path: Path) -> str | None:
    try:
        return files.read_text(path, limit_bytes=templates.SCRIPT_LIMIT_BYTES, errors="replace")
    except OSError:
        return None
