"""A new job goes on with the work of one that failed: what is needed, and exactly once."""

from __future__ import annotations

import dataclasses
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import errors, jobs, recovery, specs
from orchestrator.controller.recovery import progress
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, provenance, render, submit
from orchestrator.tracking import run_folder


class OverError(errors.ConflictError):
    """Nothing goes on with this job; the message says why."""


class AwayError(errors.ConflictError):
    """A folder that is needed is not seen from here; another login host may have it: /scratch."""


class BusyError(errors.ConflictError):
    """Another process changed the job at this moment: a later pass sees what it did."""


def go_on(
    context: contexts.Context, job: jobs.Job, one: recovery.StoredDecision
) -> jobs.Job | None:
    """Submit the job that goes on with `job`, as it was decided; None: another host has to.

    The decision is done in the transaction that stores the new job, and what was stored is sent by
    whoever looks at Slurm: a process that is killed here loses and doubles nothing. OverError
    where people did something else meanwhile, BusyError where another process is at it, AwayError
    where its folder is not seen. Raises what submit.send raises, too.
    """
    context = context.with_scheduler(job.scheduler)
    if clusters.facts(context).cluster != job.cluster:
        return None
    with context.store.reading() as work:
        stored = work.jobs.submission_of(job.row)
    papers: dict[str, Any] = json.loads(stored.provenance)
    calling_folder = Path(str(papers["folder"]))
    if not calling_folder.is_dir():
        told = f"{calling_folder}, where it was submitted, is not seen from {socket.gethostname()}"
        raise AwayError(told)
    old_folder = run_folder.RunFolder(Path(job.run_dir))
    if exposed := contexts.run_folder_exposure(context, old_folder.path):
        raise AwayError(exposed)
    environ = old_folder.retry_environment()
    if environ is not None:
        context = dataclasses.replace(context, environ=environ)
    old_spec = specs.from_json(stored.spec)
    spec = recovery.changed(old_spec, one.decision.changes, task=job.array_task_id)
    # What it depended on came before its first start, and may be forgotten by now.
    spec = dataclasses.replace(spec, dependency=None)
    request = render.Request(spec=spec, source=str(papers["spec"]), argv=sys.argv)
    runs_dir = Path(job.run_dir).parent
    script = stored.script
    template = str(papers["template"]), str(papers["template_sha256"])
    if spec != old_spec and spec.launch.batch_file is None:
        there = dataclasses.replace(context.configuration, runs_dir=runs_dir)
        rendered = render.render(there, request, is_local=context.is_local)
        script, template = rendered.text, (rendered.template, rendered.template_hash)
    _close(old_folder, job)

    def tell(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        (new,) = added
        if not work.jobs.change(job.row, {"recovers": None}, version=job.version):
            raise BusyError(f"@{job.row} was changed by another process just now")
        if work.recovery.cancel_requested([job.row]):
            raise OverError("its end was asked for")
        if graph := work.graphs.cancelled_graph_of(
            [*work.recovery.predecessors(job.row), job.row][0]
        ):
            raise OverError(f"its graph {graph} was cancelled")
        if not work.recovery.finish(
            one, "done", next_job_row=new.row, action=recovery.Action.CONTINUE
        ):
            raise BusyError(f"another process goes on with @{job.row}")
        if job.sweep is not None:
            _follow(work, job, new)
        at = context.clock.now()
        for row, detail in (
            (job.row, f"@{new.row} goes on with it"),
            (new.row, f"goes on with {job.job_id or f'@{job.row}'} (@{job.row})"),
        ):
            event = jobs.JobEvent(at=at, kind="retry", source="rules", detail=detail)
            work.events.add_many([(row, event)])

    intent = intents.Intent(
        spec=spec,
        script=script,
        provenance=provenance.collect(context, request, template=template, folder=calling_folder),
        cluster=job.cluster,
        runs_dir=runs_dir,
        # Should this process end now, it is sent again by itself.
        queue=not context.is_local,
        tasks=None if job.array_task_id is None else [job.array_task_id],
        sweep=job.sweep,
        continues=job.row,
        links=_links(job, old_folder),
        in_transaction=tell,
    )
    new = intents.store(context, intent)
    drop_environment(context, job)
    return submit.send(context, new)


def drop_environment(context: contexts.Context, job: jobs.Job) -> None:
    """Remove what was kept for the next job, unless another task of the array may need it."""
    if job.array_task_id is not None:
        with context.store.reading() as work:
            if any(other.recovers for other in work.jobs.of_submissions([job.token])):
                return
    run_folder.RunFolder(Path(job.run_dir)).drop_retry_environment()


def _close(folder: run_folder.RunFolder, job: jobs.Job) -> None:
    """Let the job that failed start no more, and write no more where it may run on unseen."""
    try:
        closed = folder.close(job.array_task_id or 0, job.attempt)
    except FileNotFoundError as exc:
        raise OverError(f"its run folder {folder.path} is gone") from exc
    except OSError as exc:
        told = f"{folder.path} cannot be written ({exc.strerror}); it is tried again"
        raise errors.RunFolderError(told) from exc
    if not closed:
        raise OverError("it was started again meanwhile")


def _follow(work: unit_of_work.UnitOfWork, job: jobs.Job, new: jobs.Job) -> None:
    sweep = work.sweeps.cancelled_sweep_of(job.row)
    if sweep is not None:
        raise OverError(f"its sweep {sweep.name} was cancelled")
    if work.sweeps.point_of(job.row) is None:
        raise OverError("its point of the sweep was submitted again")
    work.sweeps.replace_jobs([(job.row, new.row)])


def _links(job: jobs.Job, folder: run_folder.RunFolder) -> dict[str, Path]:
    """Return the link by which the new job finds the checkpoints of the chain."""
    task = job.array_task_id
    checkpoints = folder.checkpoints(task or 0, array=task is not None)
    # That of a chain's first job: no link leads to a link.
    return {checkpoints.name: checkpoints.resolve()} if checkpoints.is_dir() else {}


def checkpoints_of(context: contexts.Context, job: jobs.Job) -> tuple[jobs.JobSpec, Path]:
    """Return the job's stored spec and the folder of its checkpoints. SpecError, as from_json."""
    with context.store.reading() as work:
        stored = work.jobs.submission_of(job.row)
    spec = specs.from_json(stored.spec)
    return spec, progress.folder_of(job, spec, stored.provenance)
