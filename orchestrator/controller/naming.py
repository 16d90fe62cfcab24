"""What a person calls jobs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import jobs, slurm


def name_of(job: jobs.Job) -> str:
    """Return what a person calls the job: its ID, or our row while it has none."""
    return job.job_id or f"@{job.row}"


def row_named(reference: str) -> int | None:
    """Return our own number that `@7` names; none: it names something else."""
    number = reference.removeprefix("@")
    # SQLite's integers have 64 bits.
    is_row = number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if is_row and reference.startswith("@") else None


def names_of(several: Sequence[jobs.Job]) -> str:
    """Return what a person calls the jobs; tasks of one array in a short form.

    That is Slurm's own, `41_[0-2]`, or our rows, `@1-3`, of an array that has no ID yet.
    """
    arrays: dict[str, list[jobs.Job]] = {}
    for job in several:
        alone = job.job_id is not None or job.array_task_id is None
        key = job.array_job_id or (name_of(job) if alone else job.token)
        arrays.setdefault(key, []).append(job)
    return ", ".join(map(_short, arrays.values()))


def _short(tasks: Sequence[jobs.Job]) -> str:
    array = tasks[0].array_job_id
    if len(tasks) == 1:
        return name_of(tasks[0])
    if array is None:
        # Not submitted: our rows are all that they have.
        return "@" + slurm.fold_tasks(job.row for job in tasks).replace(",", ",@")
    return f"{array}_[{slurm.fold_tasks(job.array_task_id or 0 for job in tasks)}]"
