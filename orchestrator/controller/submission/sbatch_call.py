"""The call of sbatch for a stored submission."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder
from orchestrator.jobs import dependency as dependencies
from orchestrator.jobs import naming
from orchestrator.slurm import failures, sbatch, variables


class NotAcceptedError(errors.SlurmError):
    """sbatch printed no job ID: Slurm does not have the job, or may have it (AMBIGUOUS)."""

    def __init__(self, outcome: sbatch.Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.sentence)


def submit(
    context: contexts.Context,
    spec: jobs.JobSpec,
    job: jobs.Job,
    submission: jobs.Submission,
    options: Sequence[str],
) -> str:
    """Submit the script through submitit and return the job ID; `options` override the script's.

    Raises NotAcceptedError, and SlurmError if sbatch could not be started.
    """
    # It takes 0.2 s to import, and few commands submit.
    from orchestrator.controller.submission import submitit

    folder = run_folder.RunFolder(Path(job.run_dir))
    argv = sbatch.command(
        folder.script,
        run_folder.slurm_name(job.name, job.token),
        output=None
        if spec.output
        else folder.stdout_pattern(array=spec.array.task_ids is not None),
        comment=None if spec.comment else job.token,
        extra=options,
        arguments=script_arguments(spec),
    )
    start_folder = folder.start_folder(spec, Path(submission.calling_folder))
    environ = folder.environment() or variables.for_submission(
        context.environ, inherit={*(spec.environment.variables or ()), *spec.environment.inherit}
    )
    return submitit.submit_to_slurm(
        folder.path,
        lambda: call(context, argv, environ=environ, folder=str(start_folder)),
    )


def options(
    spec: jobs.JobSpec, tasks: Sequence[int | None], *, dependency: str, may_be_recovered: bool
) -> list[str]:
    """Return the options for sbatch's command line, which override those in the script.

    tasks: those to submit. dependency: "" keeps the script's. may_be_recovered: a job that it
    depends on may be retried after a failure.
    """
    words = batch_file_options(spec)
    numbers = [task for task in tasks if task is not None]
    if spec.array.task_ids is not None and len(numbers) < len(spec.array.task_ids):
        limit = "" if spec.array.max_running is None else f"%{spec.array.max_running}"
        words = [f"--array={naming.fold_tasks(numbers)}{limit}", *words]
    if dependency:
        words = [word for word in words if not word.startswith("--dependency=")]
        words.append(f"--dependency={dependency}")
    if dependency and may_be_recovered:
        # With kill_invalid_depend Slurm would cancel it at the first failure of the other job.
        words.append("--kill-on-invalid-dep=no")
    return words


def batch_file_options(spec: jobs.JobSpec) -> list[str]:
    """Return the options that override those of a batch file; none without batch file."""
    if spec.launch.batch_file is None:
        return []
    options = dict(spec.sbatch)
    if "dependency" in options:
        # Names of our own jobs become job IDs when sbatch is called. "" overrides the file's.
        of_slurm, _ = dependencies.split(str(options.pop("dependency")))
        options |= {} if of_slurm is None else {"dependency": of_slurm}
    return [f"--{key}" if value is True else f"--{key}={value}" for key, value in options.items()]


def script_arguments(spec: jobs.JobSpec) -> Sequence[str]:
    """Return the arguments of the script: only a batch file has some."""
    return [] if spec.launch.batch_file is None else spec.launch.program


def call(
    context: contexts.Context, argv: Sequence[str], *, environ: dict[str, str], folder: str
) -> str:
    """Run sbatch in `folder` and return the job ID; raises NotAcceptedError."""
    with context.reporter.activity("Submitting (sbatch)"):
        # Everything slow is done: a process that was suspended for minutes stops here.
        context.guard.confirm_lease()
        result = failures.run(
            argv,
            timeout_seconds=sbatch.TIMEOUT_SECONDS,
            environ=environ,
            die_with_parent=True,
            folder=folder,
        )
    outcome = sbatch.classify(result)
    if outcome.job_id is None or outcome.kind is sbatch.OutcomeKind.AMBIGUOUS:
        raise NotAcceptedError(outcome)
    return outcome.job_id
