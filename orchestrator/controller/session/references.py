"""What `JOB` on the command line means: a row, an ID of Slurm's or of this machine's, or a name."""

from __future__ import annotations

from db import unit_of_work
from orchestrator import jobs
from orchestrator.jobs import naming
from orchestrator.slurm import job_ids


def find(work: unit_of_work.UnitOfWork, reference: str) -> list[jobs.Job]:
    """Return what `JOB` on the command line means: `@7`, `123`, `123_4`, `local-7` or a NAME.

    `123_[2-5,8]` are some tasks of an array, `123` all; so are the rows `@6-9` and `@4,@6-7` of
    one submission. They stand together. Jobs of several
    submissions (`token`) mean that the reference is ambiguous: several live ones of that name,
    or one job ID on two clusters.
    """
    if reference.startswith("@"):
        row = naming.row_named(reference)
        found = None if row is None else work.jobs.get(row)
        return _rows_of_one(work, reference[1:]) if found is None else [found]
    master, tasks = _tasks_named(reference)
    # SLURM_JOB_ID of local-7 is 7, and so may be the ID of a job in Slurm.
    scheduler = "local" if reference.startswith("local-") else "slurm"
    by_id = work.jobs.find(jobs.JobQuery(job_ids=(master,), scheduler=scheduler, limit=None))
    if by_id:
        # Slurm may give an ID to another job later: on one cluster the newest is meant.
        newest = {job.cluster: job.token for job in reversed(by_id)}
        named = [job for job in by_id if job.token == newest[job.cluster]]
        if tasks is None:
            return named
        # All that were asked for or none: half a range would be a misunderstanding.
        chosen = [job for job in named if job.array_task_id in tasks]
        return chosen if {job.array_task_id for job in chosen} == tasks else []
    by_name = work.jobs.find(jobs.JobQuery(names=(reference,), limit=None))
    live = {job.token for job in by_name if not job.ended}
    tokens = live if len(live) > 1 else {job.token for job in by_name[:1]}
    return [job for job in by_name if job.token in tokens]


def _tasks_named(reference: str) -> tuple[str, set[int] | None]:
    """Return the array's ID and the tasks of `123_[2-5,8]`, or `123_[2-5,8%2]` as squeue prints it.

    Any other reference is returned as it stands.
    """
    master, bracket, rest = reference.partition("_[")
    if not (bracket and rest.endswith("]") and master.removeprefix("local-").isdecimal()):
        return reference, None
    try:
        return master, set(job_ids.expand_tasks(rest.removesuffix("]").partition("%")[0]))
    except ValueError:
        return reference, None


def _rows_of_one(work: unit_of_work.UnitOfWork, text: str) -> list[jobs.Job]:
    """Return the rows `6-9` or `4,@6-7` where all of them are there and of one submission."""
    try:
        wanted = set(job_ids.expand_tasks(text.replace(",@", ",")))
    except ValueError:
        return []
    # `6-5` names no row, and SQLite's integers have 64 bits.
    first = work.jobs.get(min(wanted)) if wanted and max(wanted) < 2**63 else None
    if first is None:
        return []
    mine = [job for job in work.jobs.of_submissions([first.token]) if job.row in wanted]
    return mine if len(mine) == len(wanted) else []
