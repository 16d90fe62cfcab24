"""What a stored submission waits for, in Slurm's words."""

from __future__ import annotations

from orchestrator import jobs
from orchestrator.controller import unit_of_work
from orchestrator.jobs import dependency


def text(work: unit_of_work.UnitOfWork, spec: jobs.JobSpec, job: jobs.Job) -> str:
    """Return what our own names and a sweep add, with the spec's own IDs; "": they add nothing.

    It stands on sbatch's command line, where it wins over the script's.
    """
    turns = [work.dependencies.standing_of(job.row).text]
    if job.sweep is not None:
        turns.append(work.sweeps.turn_of(job.row, len(work.jobs.tasks(job.token))).dependency)
    turn = ",".join(filter(None, turns))
    own, _ = dependency.split(spec.dependency)
    return ",".join(filter(None, [own, turn])) if turn else ""


def is_patient(work: unit_of_work.UnitOfWork, spec: jobs.JobSpec, job: jobs.Job) -> bool:
    """Tell whether a bad end of what it waits for need not be the last."""
    if job.sweep is not None and spec.retry.is_on:
        return True
    return work.dependencies.standing_of(job.row).is_recovered
