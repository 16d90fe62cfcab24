"""A rendered script -> a job ID, through submitit's executors, exactly once.

submitit carries the job in; what becomes of it is never asked of submitit (its watcher trusts job
IDs, caches wrong ends and has no time-out; submitit issue 1660), and no result pickle is read.
The private hooks used here are those of submitit 1.5.4; tests/unit/test_submitit_contract.py
fails when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.slurm import slurm as submitit_slurm

from orchestrator import errors, files
from orchestrator.local import records
from orchestrator.local.machine import Machine
from orchestrator.slurm import process, sbatch

_SCRIPT_LIMIT_BYTES = 64 * 1024 * 1024


class RefusedError(errors.SlurmError):
    """sbatch did not hand the job to Slurm, and that is certain."""

    def __init__(self, outcome: sbatch.Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.sentence)


class UnknownOutcomeError(errors.SlurmError):
    """sbatch's answer does not tell whether Slurm took the job."""

    def __init__(self, outcome: sbatch.Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.sentence)


class ScriptJob(submitit_slurm.SlurmJob[None]):
    """submitit's handle of a job that runs a script of ours."""

    def _register_in_watcher(self) -> None:
        # Registering makes submitit call sacct at once (core.py 147); tracking does that for us.
        return


class ScriptExecutor(submitit.SlurmExecutor):
    """submitit's Slurm executor for one script that is already rendered and stored."""

    job_class = ScriptJob

    def __init__(
        self,
        script: Path,
        *,
        command: Sequence[str],
        run: Callable[[list[str]], process.Result],
    ) -> None:
        self._script = script
        self._command = command
        self._run = run
        super().__init__(folder=script.parent)

    def submit_script(self) -> submitit.Job[None]:
        """Submit the script; raises RefusedError or UnknownOutcomeError."""
        return self._submit_command("")

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return files.read_text(self._script, limit_bytes=_SCRIPT_LIMIT_BYTES)

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return [*self._command]

    def _submit_command(self, command: str) -> submitit.Job[None]:
        # submitit's own has no time-out and takes any error for "not submitted" (core.py 927).
        answer = self._run(self._make_submission_command(self._script))
        outcome = sbatch.classify(answer)
        if outcome.kind is sbatch.OutcomeKind.AMBIGUOUS:
            raise UnknownOutcomeError(outcome)
        if outcome.job_id is None:
            raise RefusedError(outcome)
        return self.job_class(folder=self.folder, job_id=outcome.job_id, tasks=[0])


def submit(
    script: Path,
    *,
    command: Sequence[str],
    run: Callable[[list[str]], process.Result],
) -> str:
    """Return the job ID that Slurm gave the script when `command`, of sbatch, was run.

    Raises RefusedError when Slurm certainly has no such job, UnknownOutcomeError when it may.
    """
    try:
        executor = ScriptExecutor(script, command=command, run=run)
    except RuntimeError as exc:
        raise errors.SlurmError(
            "srun is not on PATH, so this machine has no Slurm; submit from a login node, "
            "or load the module that brings Slurm"
        ) from exc
    return executor.submit_script().job_id


class MachineExecutor(submitit.LocalExecutor):
    """submitit's local executor for one script that is already rendered and stored.

    submitit's own starts every job at once, as our child, for two minutes (local.py 125); ours
    puts it into the machine's line, and its job ID is no PID.
    """

    def __init__(self, script: Path, *, enter: Callable[[], str]) -> None:
        self._enter = enter
        super().__init__(folder=script.parent)

    def submit_script(self) -> submitit.Job[None]:
        """Put the script into the line."""
        return self._submit_command("")

    def _submit_command(self, command: str) -> submitit.LocalJob[Any]:
        return submitit.LocalJob(folder=self.folder, job_id=self._enter())


def submit_here(
    script: Path,
    *,
    machine: Machine,
    request: records.Request,
    logs: Callable[[str, int], tuple[str, str | None]],
    bind: Callable[[str], None],
) -> str:
    """Return the job ID, `local-7`, that this machine gave the script; it starts in its turn.

    `logs`: job ID and SLURM_JOB_ID -> paths of stdout and stderr. `bind` stores the hash of the
    request.
    """
    executor = MachineExecutor(script, enter=lambda: machine.submit(request, logs, bind))
    return executor.submit_script().job_id
