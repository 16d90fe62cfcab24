"""Submit a job to this machine, without Slurm."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator import errors, files, jobs, specs
from orchestrator.controller.session import clock_check, contexts
from orchestrator.controller.submission import intents, log_paths, sbatch_call
from orchestrator.files import run_folder
from orchestrator.local import checks, records, slots
from orchestrator.rendering import batch_options, templates
from orchestrator.specs import ranks
from orchestrator.toml import values

#: the environment of a script with export = "none" (man sbatch, --export=NONE)
_LOGIN = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TERM", "TZ", "TMPDIR")
#: a larger program is not searched for names of variables
_PROGRAM_BYTES = 1 << 20


def submit(
    context: contexts.Context, spec: jobs.JobSpec, job: jobs.Job, submission: jobs.Submission
) -> str:
    """Append a stored job to this machine's queue and return its ID, `local-7`.

    spec: with the dependency on local job IDs. Raises SpecError if the machine has lost a GPU
    since the job was checked.
    """
    # It takes 0.2 s to import, and few commands submit.
    from orchestrator.controller.submission import submitit

    request = _request(context, spec, job, submission)
    patterns = log_paths.LogPaths.of_submission(submission)

    def logs(job_id: str, number: int) -> tuple[str, str | None]:
        paths = patterns.paths(job_id, str(number))
        return str(paths["stdout_path"]), paths["stderr_path"]

    def store_hash(sha256: str) -> None:
        # Durable: after a power cut a job without its hash would not be started.
        with context.store.writing(durable=True) as work:
            work.jobs.set_request_hash(job.token, sha256)

    def tokens_in_use() -> set[str] | None:
        if clock_check.checked(context).clock.doubt:
            # The age of files is not known.
            return None
        ids = checks.dependency_job_ids(request.dependency)
        dependency_tokens = {entry.token for own in ids for entry in context.machine.jobs(own)}
        with context.store.reading() as work:
            return dependency_tokens | {live.token for live in work.jobs.live(job.cluster)}

    try:
        context.machine.clear(tokens_in_use)
        return submitit.submit_to_machine(
            Path(job.run_dir), lambda: context.machine.submit(request, logs, store_hash)
        )
    except OSError as error:
        raise errors.OrchestratorError(f"cannot submit: {error}") from error


def _request(
    context: contexts.Context, spec: jobs.JobSpec, job: jobs.Job, submission: jobs.Submission
) -> records.Request:
    folder = run_folder.RunFolder(Path(job.run_dir))
    script = files.read_text(folder.script, limit_bytes=templates.SCRIPT_LIMIT_BYTES)
    spec, gpus, available = requirements(context, spec, script)
    folder_of_job = folder.start_folder(spec, Path(submission.calling_folder, spec.chdir or ""))
    environ = intents.stored_environment(
        context,
        spec.environment,
        reason="a local job may start later",
        texts=[script, *_program_texts(spec.launch, folder_of_job)],
    )
    if spec.environment.export == "none":
        environ = {name: environ[name] for name in _LOGIN if name in environ}
    if context.profile.scheduler == "auto":
        context.reporter.info(
            f"No sbatch on PATH: the job runs on this machine, {context.machine.host}"
        )
    keys = checks.ignored_keys(spec)
    if keys and keys != _ignored_before(context, job):
        context.reporter.info(f"Ignored without Slurm: {', '.join(keys)}")
    if gpus and not available.are_gpus:
        context.reporter.info("This machine has no GPU: the ranks of the job run on the CPU")
    umask = os.umask(0o077)
    os.umask(umask)
    slot_count = len(available.devices) if spec.exclusive else gpus or 1
    with context.store.reading() as work:
        tasks = work.jobs.tasks(job.token)
    return records.Request(
        token=job.token,
        name=run_folder.slurm_name(job.name, job.token),
        script=str(folder.script),
        arguments=tuple(sbatch_call.script_arguments(spec)),
        run_dir=str(folder.path),
        folder=str(folder_of_job),
        environ=environ,
        cpus_per_task=spec.resources.cpus_per_task,
        signal_seconds=spec.signal_seconds,
        kill_wait_seconds=context.profile.local_kill_wait_seconds,
        slots_are_gpus=available.are_gpus,
        slots=slot_count if available.are_gpus or spec.exclusive else 1,
        devices=available.devices,
        time_limit_seconds=values.seconds(spec.time_limit) if spec.time_limit else None,
        may_requeue=spec.requeue is not False,
        tasks=tuple(task.array_task_id for task in tasks if task.array_task_id is not None) or None,
        most_at_once=spec.array.max_running,
        dependency=spec.dependency or "",
        umask=umask,
    )


def _program_texts(launch: jobs.Launch, folder: Path) -> Iterator[str]:
    """Yield the texts of the programs that a command line names, such as train.py."""
    for word in (launch.script or "", *launch.program, *(launch.command or "").split()):
        # A missing file is reported by the job.
        with contextlib.suppress(OSError, ValueError, errors.OrchestratorError):
            if word.endswith((".py", ".sh")):
                yield files.read_text(folder / word, limit_bytes=_PROGRAM_BYTES, errors="replace")


def _ignored_before(context: contexts.Context, job: jobs.Job) -> list[str]:
    """Return the keys ignored for the previous job with this name, whose user was told so."""
    query = jobs.JobQuery(names=(job.name,), cluster=job.cluster, below=job.row, limit=1)
    with context.store.reading() as work:
        submissions = [work.jobs.submission_of(before.row) for before in work.jobs.find(query)]
    # A spec of another version is not worth an error here.
    with contextlib.suppress(errors.SpecError):
        for stored in submissions:
            spec = batch_options.with_directives(specs.from_json(stored.spec), stored.script)
            return checks.ignored_keys(spec)
    return []


def has_gpus(context: contexts.Context) -> bool:
    return slots.find(context.environ, count=context.profile.local_slots).are_gpus


def estimate(context: contexts.Context, spec: jobs.JobSpec, script: str) -> str:
    """Return what the job would wait for, as a sentence; nothing is submitted."""
    _, _, available = requirements(context, spec, script)
    queued = context.machine.squeue(lambda *_: True)
    before = sum(row.state not in jobs.TERMINAL for row in queued)
    kind = "GPUs" if available.are_gpus else "slots"
    return f"{kind} of this machine: {len(available.devices)}; jobs in the queue: {before}"


def requirements(
    context: contexts.Context, spec: jobs.JobSpec, script: str
) -> tuple[jobs.JobSpec, int | None, slots.Slots]:
    """Return the spec with the script's directives, its GPUs per node, and this machine's slots.

    Raises SpecError if this machine has fewer GPUs.
    """
    spec = batch_options.with_directives(spec, script)
    gpus = spec.resources.gpus_per_node or ranks.gpus_of_gres(spec.resources.gres or "")
    available = slots.find(context.environ, count=context.profile.local_slots)
    checks.check_gpus(gpus, available)
    return spec, gpus, available
