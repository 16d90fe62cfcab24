"""A submission without Slurm: what this machine is asked for, and what it has."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator import errors, files, jobs
from orchestrator.controller.metrics import log_paths
from orchestrator.controller.session import clock_check, contexts
from orchestrator.controller.submission import dependencies, environments, submitit
from orchestrator.local import checks, records, slots
from orchestrator.rendering import batch_file, batch_options, templates
from orchestrator.slurm import variables
from orchestrator.specs import ranks
from orchestrator.toml import values
from orchestrator.tracking import run_folder

#: What a script starts with where the spec says export = "none" (man sbatch, --export=NONE).
_LOGIN = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TERM", "TZ", "TMPDIR")


def check(
    context: contexts.Context,
    spec: jobs.JobSpec,
    script: str,
    *,
    cure: str = dependencies.LEAVE_OUT,
) -> None:
    """Raise what is known to keep the spec from ever running, before anything is stored.

    `cure`: what to do about a dependency that can't be kept.
    """
    if context.is_local:
        spec = batch_options.with_directives(spec, script)
        checks.check_gpus(asked_gpus(spec), _slots(context))
    dependencies.check(context, spec.dependency, cure=cure)


def enter(
    context: contexts.Context,
    spec: jobs.JobSpec,
    job: jobs.Job,
    folder: run_folder.RunFolder,
    calling_folder: str | None,
) -> str:
    """Put the stored intent into this machine's line and return its job ID.

    Raises SpecError where the machine lost a GPU since `check`.
    """
    spec = batch_options.with_directives(
        spec, files.read_text(folder.script, limit_bytes=templates.SCRIPT_LIMIT_BYTES)
    )
    with context.store.reading() as work:
        found = work.jobs.of_submissions([job.token])
    tasks = tuple(one.array_task_id for one in found if one.array_task_id is not None)
    called_in = Path(calling_folder or context.folder)
    slots = _slots(context)
    asked = asked_gpus(spec)
    checks.check_gpus(asked, slots)
    environ = environments.stored(context, spec.environment, reason="a local job may start later")
    if spec.environment.export == "none":
        environ = {name: environ[name] for name in _LOGIN if name in environ}
    needed = len(slots.devices) if spec.exclusive else asked or 1
    request = records.Request(
        token=job.token,
        name=run_folder.slurm_name(job.name, job.token),
        script=str(folder.script),
        arguments=tuple(batch_file.arguments_of(spec)),
        run_dir=str(folder.path),
        folder=str(called_in / (spec.chdir or "")),
        environ=environ,
        cpus_per_task=spec.resources.cpus_per_task,
        signal_seconds=spec.signal_seconds,
        kill_wait_seconds=context.profile.local_kill_wait_seconds,
        slots_are_gpus=slots.are_gpus,
        slots=needed if slots.are_gpus or spec.exclusive else 1,
        devices=slots.devices,
        time_limit_seconds=values.seconds(spec.time_limit) if spec.time_limit else None,
        may_requeue=spec.requeue is not False,
        tasks=tasks or None,
        most_at_once=spec.array.max_running,
        dependency=spec.dependency or "",
        # As sbatch does: the job's files get the modes that the user's shell gives them.
        umask=_umask(),
        format=1,
    )
    if context.profile.scheduler == "auto":
        context.reporter.info(
            f"No sbatch on PATH: the job runs on this machine, {context.machine.host}"
        )
    if keys := checks.ignored_keys(spec):
        context.reporter.info(f"Without Slurm these mean nothing: {', '.join(keys)}")
    if asked and not slots.are_gpus:
        context.reporter.info(
            "This machine has no GPU: the job gets none, and its ranks share the CPU"
        )
    with context.store.reading() as work:
        papers = work.jobs.submission_of(job.row)
    assert papers is not None, "each job belongs to one (foreign key)"
    places = log_paths.LogPaths.of_submission(papers)

    def logs(job_id: str, number: int) -> tuple[str, str | None]:
        paths = places.paths(job, job_id, str(number))
        error = paths["stderr_path"]
        return str(paths["stdout_path"]), None if error is None else str(error)

    def bind(sha256: str) -> None:
        # Durably: a job that outlives a power cut without its hash would not be started.
        with context.store.writing(durable=True) as work:
            work.jobs.set_request_hash(job.token, sha256)

    def still_needed() -> set[str] | None:
        # Nothing is old by a clock that leapt.
        if clock_check.checked(context).clock.doubt:
            return None
        # What it depends on was there when that was checked, and is not cleared before it waits.
        ids = checks.dependency_job_ids(request.dependency)
        others = {entry.token for one in ids for entry in context.machine.jobs(one)}
        with context.store.reading() as work:
            return others | {one.token for one in work.jobs.live(job.cluster)}

    try:
        context.machine.clear(still_needed, variables.stored)
        return submitit.submit_here(
            folder.script, machine=context.machine, request=request, logs=logs, bind=bind
        )
    except OSError as exc:
        raise errors.OrchestratorError(f"cannot submit: {exc}") from exc


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def estimate(context: contexts.Context, spec: jobs.JobSpec, script: str) -> str:
    """Return a sentence on when the job would start here; nothing is submitted."""
    spec = batch_options.with_directives(spec, script)
    slots = _slots(context)
    checks.check_gpus(asked_gpus(spec), slots)
    waiting = context.machine.squeue(lambda *_: True)
    before = sum(row.state not in jobs.TERMINAL for row in waiting)
    kind = "GPU" if slots.are_gpus else "slot"
    plural = "" if len(slots.devices) == 1 else "s"
    return f"this machine has {len(slots.devices)} {kind}{plural}; jobs before it: {before}"


def asked_gpus(spec: jobs.JobSpec) -> int | None:
    """Return how many GPUs the spec asks for."""
    return spec.resources.gpus_per_node or ranks.gpus_of_gres(spec.resources.gres or "")


def _slots(context: contexts.Context) -> slots.Slots:
    return slots.find(context.environ, count=context.profile.local_slots)
