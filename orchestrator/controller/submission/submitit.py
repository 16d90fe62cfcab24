"""A script that is already rendered and stored, handed over through submitit.

submitit hands the job over and nothing more: it is not asked about the job's state, because its
watcher trusts job IDs, caches wrong states and has no time limit (submitit issue 1660).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import submitit
from submitit.slurm import slurm as submitit_slurm

from orchestrator import errors


class _SlurmJob(submitit_slurm.SlurmJob[None]):
    def _register_in_watcher(self) -> None:
        # Private in submitit 1.5.4. The original calls sacct at once (core.py 147).
        return


def submit_to_slurm(run_dir: Path, call_sbatch: Callable[[], str]) -> str:
    """Return the job ID from sbatch; SlurmError if this host has no Slurm.

    submitit's own call has no time limit and takes any error for "not submitted" (core.py 927).
    """
    try:
        executor = submitit.SlurmExecutor(folder=run_dir)
    except RuntimeError as error:
        raise errors.SlurmError(
            "srun is not on PATH, so this host has no Slurm. Submit from a login node, or load "
            "the module that provides Slurm."
        ) from error
    return _SlurmJob(folder=executor.folder, job_id=call_sbatch(), tasks=[0]).job_id


def submit_to_machine(run_dir: Path, enqueue: Callable[[], str]) -> str:
    """Return the job ID from this machine, `local-7`.

    submitit's own executor starts each job at once, as a child of this process (local.py 125).
    """
    executor = submitit.LocalExecutor(folder=run_dir)
    return submitit.LocalJob[None](folder=executor.folder, job_id=enqueue()).job_id
