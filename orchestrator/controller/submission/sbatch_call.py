"""What sbatch is called with for a submission."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.rendering import batch_file
from orchestrator.slurm import sbatch
from orchestrator.tracking import run_folder


def command(
    spec: jobs.JobSpec,
    folder: run_folder.RunFolder,
    name: str,
    token: str,
    options: Sequence[str],
) -> list[str]:
    """Return the call of sbatch; `options` are those that the script does not have."""
    is_array = spec.array.task_ids is not None
    return sbatch.command(
        folder.script,
        run_folder.slurm_name(name, token),
        output=None if spec.output else folder.stdout_pattern(array=is_array),
        comment=None if spec.comment else token,
        extra=options,
        arguments=batch_file.arguments_of(spec),
    )


def options(
    spec: jobs.JobSpec, tasks: Sequence[int | None], *, dependency: str, may_be_recovered: bool
) -> list[str]:
    """Return sbatch's options beside the script, if these tasks are sent.

    `dependency` replaces that of the script, unless it is empty. `may_be_recovered`: the job stays
    pending if the dependency can never be satisfied.
    """
    found = [*_part_of_array(spec, tasks), *batch_file.options_of(spec)]
    if dependency:
        # A batch file's own is in it.
        found = [one for one in found if not one.startswith("--dependency=")]
        found.append(f"--dependency={dependency}")
    if may_be_recovered:
        # Or a site with kill_invalid_depend cancels it at the first bad end of a chain.
        found.append("--kill-on-invalid-dep=no")
    return found


def _part_of_array(spec: jobs.JobSpec, sent: Sequence[int | None]) -> list[str]:
    """Return what stands in place of the script's --array where only some tasks are sent."""
    tasks = [task for task in sent if task is not None]
    if spec.array.task_ids is None or len(tasks) == len(spec.array.task_ids):
        return []
    limit = "" if spec.array.max_running is None else f"%{spec.array.max_running}"
    return [f"--array={naming.fold_tasks(tasks)}{limit}"]
