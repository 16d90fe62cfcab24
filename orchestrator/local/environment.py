"""The environment of a local job's script."""

from __future__ import annotations

from orchestrator.local.machine import MARK
from orchestrator.local.records import Entry, Request


def for_script(entry: Entry, request: Request, host: str) -> dict[str, str]:
    """Return the script's environment: the submitter's variables, and Slurm's for one node.

    Without SLURM_NTASKS and SLURM_PROCID: libraries take them for tasks that srun started.
    """
    variables: dict[str, str | int | None] = {
        # A number: scripts compute ports from it.
        "SLURM_JOB_ID": entry.raw_number,
        "SLURM_JOBID": entry.raw_number,
        "SLURM_JOB_NAME": entry.name,
        "SLURM_JOB_NODELIST": host,
        "SLURM_JOB_NUM_NODES": 1,
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
        "SLURMD_NODENAME": host,
        "SLURM_SUBMIT_DIR": request.folder,
        "SLURM_SUBMIT_HOST": host,
        "SLURM_CPUS_PER_TASK": request.cpus_per_task,
        # Slurm sets it from the first restart on.
        "SLURM_RESTART_COUNT": entry.restart_count or None,
        MARK: entry.mark,
    }
    if request.slots_are_gpus:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(entry.given)
        variables["SLURM_GPUS_ON_NODE"] = len(entry.given)
    if request.tasks is not None:
        variables["SLURM_ARRAY_JOB_ID"] = entry.number
        variables["SLURM_ARRAY_TASK_ID"] = entry.task
        variables["SLURM_ARRAY_TASK_COUNT"] = len(request.tasks)
        variables["SLURM_ARRAY_TASK_MIN"] = min(request.tasks)
        variables["SLURM_ARRAY_TASK_MAX"] = max(request.tasks)
    own = {name: str(value) for name, value in variables.items() if value is not None}
    return {**request.environ, **own}
