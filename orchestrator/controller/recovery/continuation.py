"""How far a failed job came, and the job that continues its work, submitted exactly once."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from db import unit_of_work
from orchestrator import errors, files, jobs, recovery, specs
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import intents, job_scripts, provenance, submit
from orchestrator.files import run_folder

#: Names with a step: "checkpoint-0000000120.pt", "step_120", "global_step120", "120.ckpt".
_STEP = re.compile(r"(?:^|[-_.=]|step|checkpoint|ckpt|epoch)(?P<step>[0-9]{1,18})(?=[-_.]|$)")
#: Limit for checkpoints that consist of thousands of files.
_MAX_FILES = 10_000
#: Unfinished checkpoints, and those that a trainer could not read.
_UNUSABLE = re.compile(r"\.(?:draft|tmp|part|damaged)\b")


class NotContinuedError(errors.ConflictError):
    """The job will not be continued; the message has the reason."""


class NotVisibleError(errors.ConflictError):
    """This host cannot see a folder that is needed; another login host may: /scratch."""


class BusyError(errors.ConflictError):
    """Another process changed the job at this moment."""


def continue_job(
    context: contexts.Context, job: jobs.Job, planned: recovery.StoredDecision
) -> jobs.Job | None:
    """Submit the continuation job that was decided on; None: another host has to do it.

    One transaction stores the new job and marks the decision as done. If this process is killed
    afterwards, the job is submitted like any stored one, so that nothing is lost or done twice.

    Raises NotContinuedError if a person did something else meanwhile, BusyError, NotVisibleError,
    and what submit.send raises.
    """
    with context.store.reading() as work:
        if work.events.cancel_requested([job.row]):
            raise NotContinuedError("its cancellation was requested")
        stored = work.jobs.submission_of(job.row)
    context = context.with_scheduler(job.scheduler)
    if clusters.facts(context).cluster != job.cluster:
        return None
    old: dict[str, Any] = json.loads(stored.provenance)
    calling_folder = Path(str(old["folder"]))
    old_spec = specs.from_json(stored.spec)
    if not calling_folder.is_dir() and old_spec.code.tree is None:
        host = socket.gethostname()
        raise NotVisibleError(f"the submission folder {calling_folder} is not visible on {host}")
    old_folder = run_folder.RunFolder(Path(job.run_dir))
    if exposed := contexts.run_folder_exposure(context, old_folder.path):
        raise NotVisibleError(exposed)
    environ = old_folder.environment(run_folder.RETRY_ENVIRONMENT)
    if environ is not None:
        context = dataclasses.replace(context, environ=environ)
    spec = recovery.changed(old_spec, planned.changes, task=job.array_task_id)
    # Its dependencies were satisfied before its first start, and Slurm may have forgotten them.
    spec = dataclasses.replace(spec, dependency=None)
    if spec.launch.batch_file is not None:
        # Overrides the file's directive: slurmctld takes an empty one as none.
        spec = dataclasses.replace(spec, sbatch={**spec.sbatch, "dependency": ""})
    request = job_scripts.Request(spec=spec, source=str(old["spec"]), argv=sys.argv)
    runs_dir = Path(job.run_dir).parent
    script = stored.script
    template = str(old["template"]), str(old["template_sha256"])
    if spec != old_spec and spec.launch.batch_file is None:
        configuration = dataclasses.replace(context.configuration, runs_dir=runs_dir)
        rendered = job_scripts.render(configuration, request, is_local=context.is_local)
        script, template = rendered.text, (rendered.template, rendered.template_hash)
    _close(old_folder, job, with_tracking=bool(spec.tracking.trackers))

    def finish(work: unit_of_work.UnitOfWork, added: Sequence[jobs.Job]) -> None:
        _store_continuation(context, work, planned, job, added[0])

    task = job.array_task_id
    # Resolved, because the first job of the chain has the real folders.
    kept = [old_folder.checkpoints(task), old_folder.path / run_folder.CODE]
    links = {path.name: path.resolve() for path in kept if path.is_dir()}
    if spec.tracking.trackers:
        # Also if the folder was deleted: the run's ID is in its path, and the script makes it.
        tracking = old_folder.tracking(task)
        links[tracking.name] = tracking.resolve()
    intent = intents.Intent(
        spec=spec,
        script=script,
        provenance=provenance.collect(context, request, template=template, folder=calling_folder),
        cluster=job.cluster,
        runs_dir=runs_dir,
        # If this process is killed now, the job is submitted like any deferred one.
        queue=not context.is_local,
        tasks=None if task is None else [task],
        sweep=job.sweep,
        continues=job.row,
        links=links,
        in_transaction=finish,
    )
    new = intents.store(context, intent)
    drop_environment(context, job)
    return submit.send(context, new)


def _store_continuation(
    context: contexts.Context,
    work: unit_of_work.UnitOfWork,
    planned: recovery.StoredDecision,
    job: jobs.Job,
    new: jobs.Job,
) -> None:
    if not work.jobs.change(job.row, {"recovers": None}, version=job.version):
        raise BusyError(f"another process changed @{job.row} at this moment")
    if work.events.cancel_requested([job.row]):
        raise NotContinuedError("its cancellation was requested")
    first_row = [*work.recovery.predecessors(job.row), job.row][0]
    if graph := work.graphs.cancelled_graph_of(first_row):
        raise NotContinuedError(f"its graph {graph} was cancelled")
    action = recovery.Action.CONTINUE
    if not work.recovery.finish(planned, "done", next_job_row=new.row, action=action):
        raise BusyError(f"another process continues @{job.row}")
    if job.sweep is not None:
        if sweep := work.sweeps.cancelled_sweep_of(job.row):
            raise NotContinuedError(f"its sweep {sweep.name} was cancelled")
        if work.sweeps.point_of(job.row) is None:
            raise NotContinuedError("its point of the sweep was submitted again")
        work.sweeps.replace_jobs([(job.row, new.row)])
    details = {
        job.row: f"@{new.row} continues it",
        new.row: f"continues {job.job_id or f'@{job.row}'} (@{job.row})",
    }
    work.events.add_many(
        (row, context.event("retry", detail, source="rules")) for row, detail in details.items()
    )


def drop_environment(context: contexts.Context, job: jobs.Job) -> None:
    """Delete the stored environment, unless another task of the array may need it."""
    if job.array_task_id is not None:
        with context.store.reading() as work:
            if any(task.recovers for task in work.jobs.of_submissions([job.token])):
                return
    run_folder.RunFolder(Path(job.run_dir)).drop_environment(run_folder.RETRY_ENVIRONMENT)


def _close(folder: run_folder.RunFolder, job: jobs.Job, *, with_tracking: bool) -> None:
    """Let the failed job start no more, and write no more if it still runs unseen.

    with_tracking: trackers continue its run, even if it did not come so far.
    """
    try:
        tracking = folder.tracking(job.array_task_id)
        if with_tracking and not tracking.is_symlink():
            tracking.mkdir(mode=0o700, exist_ok=True)
        is_closed = folder.close(job.array_task_id or 0, job.attempt)
    except FileNotFoundError as error:
        raise NotContinuedError(f"its run folder {folder.path} was deleted") from error
    except OSError as error:
        reason = f"{folder.path} cannot be written ({error.strerror}); the next pass tries again"
        raise errors.RunFolderError(reason) from error
    if not is_closed:
        raise NotContinuedError("it was started again meanwhile")


def checkpoint_folder(job: jobs.Job, spec: jobs.JobSpec, provenance: str) -> Path:
    """Return the folder of the program's checkpoints, which may not exist."""
    task = job.array_task_id
    folder = spec.retry.checkpoint_dir
    if folder is None:
        tasks = spec.array.tasks
        own = tasks[task] if tasks is not None and task is not None else {}
        for name, value in {**spec.args, **own}.items():
            if name.replace("-", "_") == "checkpoint_dir" and isinstance(value, str):
                folder = value
                break
    runs_in = run_folder.RunFolder(Path(job.run_dir))
    working_folder = runs_in.working_folder(spec, str(json.loads(provenance)["folder"]))
    if folder is None or (working_folder is None and not os.path.isabs(folder)):
        return runs_in.checkpoints(task)
    return (working_folder or runs_in.path) / folder


def measure_progress(
    context: contexts.Context, job: jobs.Job, checkpoints: Path
) -> tuple[int | None, bool]:
    """Return the step that the newest attempt reached, and whether it left a checkpoint."""
    steps: list[int] = []
    times: list[float] = []
    with contextlib.suppress(OSError), os.scandir(checkpoints) as entries:
        for _, entry in zip(range(_MAX_FILES), entries, strict=False):
            if _UNUSABLE.search(entry.name):
                continue
            with contextlib.suppress(OSError):
                times.append(entry.stat().st_mtime)
            if match := _STEP.search(entry.name):
                steps.append(int(match["step"]))
    # The clocks of the file system and of Slurm may differ by some seconds.
    started_at = (job.started_at or job.created_at) - datetime.timedelta(seconds=5)
    has_checkpoint = bool(times) and files.time_of(max(times)) > started_at
    step = max(steps, default=None)
    if step is None:
        with context.store.reading() as work:
            step = work.recovery.highest_step(job.row, job.attempt)
    return step, has_checkpoint
