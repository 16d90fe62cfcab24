"""A dependency on a job that Slurm has forgotten: told before sbatch, which is right or silent.

Measured with `afterok` and `afternotok` on a job that had failed and was older than MinJobAge:
22.05 takes the dependency for met and starts the new job at once; 24.11 and 26.05 say "Job
dependency problem". All of them take `afterany` and `after` for met, which they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator import errors, jobs, local
from orchestrator.controller import context as contexts
from orchestrator.jobs import dependency as names

#: What to do where a dependency asks for an end that nobody can tell.
LEAVE_OUT = "Leave the dependency out if that end will do."
_ON_AN_END = re.compile(r"after(?:ok|notok|corr)((?::[0-9_*+]+)+)")


def check(
    context: contexts.Context,
    dependency: str | None,
    *,
    cure: str = LEAVE_OUT,
) -> None:
    """Raise ConflictError for a dependency on a job that the scheduler can tell nothing of.

    Of slurmctld only that matters of which the dependency asks how it ended. `cure`: the sentence
    on what to do then.
    """
    dependency, _ = names.split(dependency)
    if context.is_local:
        unknown = [
            one for one in local.dependencies(dependency or "") if not _is_here(context, one)
        ]
        if unknown:
            raise errors.ConflictError(
                f"{unknown[0]} is no job of this machine, or was cleared away: "
                "`orchestrator status --all` shows those there are. Nothing was submitted."
            )
        return
    for job_id in _unseen(context, on_ends(dependency or "")):
        if context.slurm.show_job_text(job_id) is None:
            raise errors.ConflictError(
                f"Slurm has forgotten job {job_id} ({_known(context, job_id)}), so it cannot tell"
                f' whether "{dependency}" is met: some releases would start the job at once. {cure}'
                " Nothing was submitted."
            )


def _unseen(context: contexts.Context, job_ids: Sequence[str]) -> list[str]:
    """Return those of the jobs that are not the user's own and in the queue: one squeue for all.

    scontrol shows one job a call; `squeue -j` of several fetches the jobs of all users.
    """
    if len(job_ids) < 2:
        return list(job_ids)
    wanted, found = set(job_ids), set()

    def keep(name: str, job_id: str, stdout_path: str) -> bool:
        found.add(job_id.partition("_")[0])
        return False

    context.slurm.squeue(keep)
    return [job_id for job_id in job_ids if job_id not in wanted & found]


def _is_here(context: contexts.Context, job_id: str) -> bool:
    return bool(context.machine.known(job_id))


def on_ends(dependency: str) -> list[str]:
    """Return the IDs of the jobs whose ends count, each once; those of arrays without their tasks.

    `afterok:12_3+10` is task 3 of array 12, and ten minutes more.
    """
    found = _ON_AN_END.findall(dependency)
    words = [word for group in found for word in group[1:].split(":")]
    return list(dict.fromkeys(re.split(r"[_+]", word)[0] for word in words))


def _known(context: contexts.Context, job_id: str) -> str:
    with context.store.reading() as work:
        newest = work.jobs.find(jobs.JobQuery(job_ids=(job_id,), limit=1))
    if not newest:
        return "it is none of yours here"
    (job,) = newest
    if job.state in jobs.TERMINAL:
        return f"here it is {job.state}"
    return f"here it was {job.state} when Slurm was last asked"
