"""What a local job finds in its environment: the submitter's variables and Slurm's own names.

Those that a single-node script reads are there, so that one text serves here and on a cluster.
SLURM_NTASKS and SLURM_PROCID are not: libraries take them for tasks that srun started.
"""

from __future__ import annotations

from orchestrator.local import machine, spool


def of(entry: spool.Entry, request: spool.Request, host: str) -> dict[str, str]:
    """Return the environment of the script."""
    told: dict[str, str | int | None] = {
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
        machine.MARK: entry.mark,
    }
    if request.slots_are_gpus:
        told["CUDA_VISIBLE_DEVICES"] = ",".join(entry.given)
        told["SLURM_GPUS_ON_NODE"] = len(entry.given)
    if request.tasks is not None:
        told["SLURM_ARRAY_JOB_ID"] = entry.number
        told["SLURM_ARRAY_TASK_ID"] = entry.task
        told["SLURM_ARRAY_TASK_COUNT"] = len(request.tasks)
        told["SLURM_ARRAY_TASK_MIN"] = min(request.tasks)
        told["SLURM_ARRAY_TASK_MAX"] = max(request.tasks)
    return {
        **request.environ,
        **{name: str(value) for name, value in told.items() if value is not None},
    }
