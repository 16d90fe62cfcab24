"""The call of sbatch for a stored submission."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.rendering import batch_file
from orchestrator.slurm import process, sbatch
from orchestrator.tracking import run_folder


class RefusedError(errors.SlurmError):
    """Slurm did not accept the job, and that is certain."""

    def __init__(self, outcome: sbatch.Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.sentence)


class UnknownOutcomeError(errors.SlurmError):
    """The output of sbatch does not tell whether Slurm accepted the job."""

    def __init__(self, outcome: sbatch.Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.sentence)


def command(spec: jobs.JobSpec, job: jobs.Job, options: Sequence[str]) -> list[str]:
    """Return the argv; `options` are added to those in the script."""
    folder = run_folder.RunFolder(Path(job.run_dir))
    is_array = spec.array.task_ids is not None
    return sbatch.command(
        folder.script,
        run_folder.slurm_name(job.name, job.token),
        output=None if spec.output else folder.stdout_pattern(array=is_array),
        comment=None if spec.comment else job.token,
        extra=options,
        arguments=batch_file.arguments_of(spec),
    )


def options(
    spec: jobs.JobSpec, tasks: Sequence[int | None], *, dependency: str, may_be_recovered: bool
) -> list[str]:
    """Return the options for sbatch's command line, which override those in the script.

    tasks: those to submit. dependency: "" keeps the script's. may_be_recovered: the job stays
    pending if its dependency can never be satisfied.
    """
    words = batch_file.options_of(spec)
    numbers = [task for task in tasks if task is not None]
    if spec.array.task_ids is not None and len(numbers) < len(spec.array.task_ids):
        limit = "" if spec.array.max_running is None else f"%{spec.array.max_running}"
        words = [f"--array={naming.fold_tasks(numbers)}{limit}", *words]
    if dependency:
        words = [word for word in words if not word.startswith("--dependency=")]
        words.append(f"--dependency={dependency}")
    if may_be_recovered:
        # With kill_invalid_depend Slurm would cancel it at the first failure of the other job.
        words.append("--kill-on-invalid-dep=no")
    return words


def call(
    context: contexts.Context, argv: Sequence[str], *, environ: dict[str, str], folder: str
) -> str:
    """Run sbatch in `folder` and return the job ID.

    Raises RefusedError if Slurm certainly does not have the job, UnknownOutcomeError if it may.
    """
    with context.reporter.activity("Submitting (sbatch)"):
        # Everything slow is done: a process that was suspended for minutes stops here.
        context.guard.confirm_lease()
        result = process.run(
            argv,
            timeout_seconds=context.slurm.sbatch_timeout_seconds,
            environ=environ,
            die_with_parent=True,
            folder=folder,
        )
    outcome = sbatch.classify(result)
    if outcome.kind is sbatch.OutcomeKind.AMBIGUOUS:
        raise UnknownOutcomeError(outcome)
    if outcome.job_id is None:
        raise RefusedError(outcome)
    return outcome.job_id
