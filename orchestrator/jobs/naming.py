"""How messages and arguments name jobs: by Slurm's ID, or by our row, `@7`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.jobs import records


def name_of(job: records.Job) -> str:
    """Return the job's ID, or our row while it has none."""
    return job.job_id or f"@{job.row}"


def row_named(reference: str) -> int | None:
    """Return the row that `@7` refers to; None for any other reference."""
    number = reference.removeprefix("@")
    # SQLite's integers have 64 bits.
    is_row = number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if is_row and reference.startswith("@") else None


def names_of(jobs: Sequence[records.Job]) -> str:
    """Return the names of the jobs; tasks of one array in a short form.

    That is Slurm's own form, `41_[0-2]`, or our rows, `@1-3`, for an array without an ID.
    """
    arrays: dict[str, list[records.Job]] = {}
    for job in jobs:
        alone = job.job_id is not None or job.array_task_id is None
        key = job.array_job_id or (name_of(job) if alone else job.token)
        arrays.setdefault(key, []).append(job)
    return ", ".join(map(_short, arrays.values()))


def rows_of(tasks: Sequence[records.Job]) -> str:
    """Return `@7`, or `@7-9` for the tasks of an array."""
    return f"@{tasks[0].row}" + (f"-{tasks[-1].row}" if len(tasks) > 1 else "")


def submitted(tasks: Sequence[records.Job]) -> str:
    """Return the sentence that says that a job or a job array was submitted."""
    first, rows = tasks[0], rows_of(tasks)
    if first.array_job_id is None:
        return f"Submitted batch job {first.job_id} ({rows}, {first.name})"
    count = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    return f"Submitted batch job {first.array_job_id} ({rows}, {first.name}, {count})"


def by_submission(jobs: Iterable[records.Job]) -> list[list[records.Job]]:
    """Return the job, or the tasks of the array, of each submission in the given order."""
    submissions: dict[str, list[records.Job]] = {}
    for job in jobs:
        submissions.setdefault(job.token, []).append(job)
    return list(submissions.values())


def _short(tasks: Sequence[records.Job]) -> str:
    array = tasks[0].array_job_id
    if len(tasks) == 1:
        return name_of(tasks[0])
    if array is None:
        # Not submitted: our rows are all that they have.
        return "@" + fold_tasks(job.row for job in tasks).replace(",", ",@")
    return f"{array}_[{fold_tasks(job.array_task_id or 0 for job in tasks)}]"


def fold_tasks(tasks: Iterable[int]) -> str:
    """Return the numbers as Slurm writes them, `1,3-5`."""
    parts: list[list[int]] = []
    for task in sorted(set(tasks)):
        if parts and parts[-1][-1] == task - 1:
            parts[-1][1:] = [task]
        else:
            parts.append([task])
    return ",".join("-".join(map(str, part)) for part in parts)
