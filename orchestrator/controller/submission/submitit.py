"""submitit's executors for a script that is already rendered and stored.

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


class SlurmExecutor(submitit.SlurmExecutor):
    job_class = _SlurmJob

    def submit_script(self, call_sbatch: Callable[[], str]) -> submitit.Job[None]:
        """Submit by calling sbatch, which returns the job ID.

        submitit's own call has no time limit and takes any error for "not submitted" (core.py 927).
        """
        return self.job_class(folder=self.folder, job_id=call_sbatch(), tasks=[0])


class LocalExecutor(submitit.LocalExecutor):
    def submit_script(self, enqueue: Callable[[], str]) -> submitit.LocalJob[None]:
        """Append the job to this machine's queue; `enqueue` returns its ID.

        submitit's own starts each job at once, as a child of this process (local.py 125).
        """
        return submitit.LocalJob(folder=self.folder, job_id=enqueue())


def submit_to_slurm(run_dir: Path, call_sbatch: Callable[[], str]) -> str:
    """Return the job ID from sbatch; SlurmError if this host has no Slurm."""
    try:
        executor = SlurmExecutor(folder=run_dir)
    except RuntimeError as error:
        raise errors.SlurmError(
            "srun is not on PATH, so this host has no Slurm. Submit from a login node, or load "
            "the module that provides Slurm."
        ) from error
    return executor.submit_script(call_sbatch).job_id


def submit_to_machine(run_dir: Path, enqueue: Callable[[], str]) -> str:
    """Return the job ID from this machine, `local-7`."""
    return LocalExecutor(folder=run_dir).submit_script(enqueue).job_id
