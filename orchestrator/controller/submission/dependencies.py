"""Dependencies: the jobs and sweeps that they refer to, and their current status.

A dependency on a job that Slurm has forgotten is refused before sbatch is called. Measured with
`afterok` and `afternotok` on a job that had failed and was older than MinJobAge: 22.05 treats the
dependency as satisfied and starts the new job at once; 24.11 and 26.05 report "Job dependency
problem". All releases treat `afterany` and `after` as satisfied, which they are.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Sequence

from db import unit_of_work
from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.jobs import dependency as records

LEAVE_OUT = "If it ended as required, leave the dependency out."
_ON_AN_END = re.compile(r"after(?:ok|notok|corr)((?::[0-9_*+]+)+)")


def check(context: contexts.Context, dependency: str | None, *, advice: str = LEAVE_OUT) -> None:
    """Raise ConflictError for a dependency on a job that the scheduler has forgotten.

    Slurm matters only if the dependency is on how the job ended. advice: what to do, a sentence.
    """
    dependency = records.split(dependency)[0] or ""
    if context.is_local:
        from orchestrator.local import checks

        for job_id in checks.dependency_job_ids(dependency):
            if not context.machine.jobs(job_id):
                raise errors.ConflictError(
                    f"job {job_id} is not in this machine's queue, or was removed from it: "
                    "`orchestrator status --all` lists all jobs. Nothing was submitted."
                )
        return
    job_ids = on_ends(dependency)
    queued: set[str] = set()

    def keep(name: str, job_id: str, stdout_path: str) -> bool:
        queued.add(job_id.partition("_")[0])
        return False

    if len(job_ids) > 1:
        # scontrol shows one job per call; `squeue -j` with several IDs fetches the jobs of all
        # users.
        context.slurm.squeue(keep)
    for job_id in job_ids:
        if job_id in queued or context.slurm.show_job(job_id) is not None:
            continue
        with context.store.reading() as work:
            known = work.jobs.find(jobs.JobQuery(job_ids=(job_id,), limit=1))
        last = "last " if known and known[0].state not in jobs.TERMINAL else ""
        state = f"{last}state {known[0].state}" if known else "it is not in the database"
        raise errors.ConflictError(
            f"Slurm has forgotten job {job_id} ({state}), so it cannot tell whether "
            f'"{dependency}" is satisfied; some releases would start the job at once. {advice} '
            "Nothing was submitted."
        )


def on_ends(dependency: str) -> list[str]:
    """Return the IDs of the jobs whose end state counts, each once; of an array its ID.

    `afterok:12_3+10` is task 3 of array 12, and ten minutes more.
    """
    words = [word for ids in _ON_AN_END.findall(dependency) for word in ids[1:].split(":")]
    return list(dict.fromkeys(re.split(r"[_+]", word)[0] for word in words))


def resolve(
    work: unit_of_work.UnitOfWork, references: Sequence[records.Reference]
) -> list[records.Dependency]:
    """Return the jobs and sweeps; a name means the newest one with it.

    Raises NotFoundError, and ConflictError if several live jobs have the name.
    """
    resolved: list[records.Dependency] = []
    for reference in references:
        kind, name = reference.kind, reference.name
        if not reference.is_sweep:
            rows = _rows_named(work, reference)
            resolved += [records.Dependency(kind=kind, on_job=row) for row in rows]
        elif sweep := work.sweeps.find(name):
            resolved.append(records.Dependency(kind=kind, on_sweep=sweep.row))
        else:
            raise errors.NotFoundError(
                f"{kind}:sweep/{name}: sweep {name!r} not found: "
                "`orchestrator sweep list` lists all sweeps"
            )
    return resolved


def _rows_named(work: unit_of_work.UnitOfWork, reference: records.Reference) -> list[int]:
    """Return the rows of the submission that `@7` or a NAME refers to."""
    kind, name = reference.kind, reference.name
    if name.startswith("@"):
        query = jobs.JobQuery(rows=(int(name[1:]),))
    else:
        query = jobs.JobQuery(names=(name,), limit=1000, whole_arrays=True)
    matching = work.jobs.find(query)
    if not matching:
        raise errors.NotFoundError(
            f"{kind}:{name}: job {name!r} not found: `orchestrator status --all` lists all jobs"
        )
    live = [job for job in matching if not job.ended]
    if len({job.token for job in live}) > 1:
        rows = ", ".join(f"@{job.row}" for job in live)
        raise errors.ConflictError(f"{kind}:{name}: several live jobs have this name: {rows}")
    token = (live or matching)[0].token
    return sorted(job.row for job in matching if job.token == token)


def of(work: unit_of_work.UnitOfWork, job_row: int) -> list[records.Dependency]:
    """Return the dependencies of the job's submission on jobs and sweeps of ours."""
    return [stored.dependency for stored in work.dependencies.of(job_row)]


def status_of(work: unit_of_work.UnitOfWork, job_row: int) -> records.Status:
    """Return the current status of the dependencies of the job's submission."""
    return status(work, of(work, job_row))


def status(
    work: unit_of_work.UnitOfWork, dependencies: Sequence[records.Dependency]
) -> records.Status:
    """Return the current status; a job that was continued counts as its continuation job."""
    ids: dict[str, list[str]] = {"afterok": [], "afterany": [], "afternotok": []}
    unsent: list[str] = []
    never: list[str] = []
    is_recovered = False
    for kind in dict.fromkeys(each.kind for each in dependencies):
        of_kind = [each for each in dependencies if each.kind == kind]
        newest = _continuations(work, of_kind)
        for row in [each.on_sweep for each in of_kind if each.on_sweep is not None]:
            sweep = work.sweeps.get(row)
            groups = work.sweeps.groups([row]).get(row, [])
            count = sum(group.points for group in groups if group.state is None)
            if sweep is not None and count:
                points = f"{count} points of sweep {sweep.name}"
                if sweep.state == "open":
                    unsent.append(f"{points} are not submitted yet")
                else:
                    cancelled = "were never submitted, and the sweep was cancelled"
                    never.append(f"{kind}: {points} {cancelled}")
        recoverable = work.dependencies.may_be_recovered([job.row for job in newest if job.ended])
        is_recovered |= any(job.recovers for job in newest)
        live = []
        for job in newest:
            if job.row in recoverable:
                unsent.append(f"@{job.row} ({job.name}) ended {job.state} and may be retried")
            elif job.ended:
                never += filter(None, [records.never(kind, job)])
            elif job.job_id is None:
                unsent.append(f"@{job.row} ({job.name}) is not submitted yet")
            elif job.missing_since is not None:
                # Slurm treats a dependency on a purged job as satisfied, however the job ended.
                unsent.append(f"Slurm does not show {job.job_id} ({job.name}) now")
            else:
                live.append(job)
        ids[kind] += _ids(work, live, newest)
    return records.Status(
        text=",".join(":".join([kind, *job_ids]) for kind, job_ids in ids.items() if job_ids),
        unsent=tuple(dict.fromkeys(unsent)),
        never=tuple(dict.fromkeys(never)),
        is_recovered=is_recovered,
    )


def continuation(work: unit_of_work.UnitOfWork, dependency: records.Dependency) -> int | None:
    """Return the row of the newest continuation job of the dependency; None: there is none."""
    newest = [job for job in _continuations(work, [dependency]) if job.continues is not None]
    return max((job.row for job in newest if job.row != dependency.on_job), default=None)


def text(
    work: unit_of_work.UnitOfWork, spec: jobs.JobSpec, job: jobs.Job, status: records.Status
) -> str:
    """Return the value of --dependency for sbatch's command line; "": the script's is right."""
    added = [status.text]
    if job.sweep is not None:
        # Few jobs belong to a sweep, and this loads many modules.
        from orchestrator.controller.sweeps import queries

        tasks = len(work.jobs.tasks(job.token))
        added.append(queries.prerequisites_of(work, job.row, tasks).dependency)
    if not any(added):
        return ""
    own, _ = records.split(spec.dependency)
    return ",".join(filter(None, [own, *added]))


def _continuations(
    work: unit_of_work.UnitOfWork, dependencies: Sequence[records.Dependency]
) -> list[jobs.Job]:
    """Return the jobs of the dependencies, each replaced by its newest continuation job."""
    rows = [each.on_job for each in dependencies if each.on_job is not None]
    for each in dependencies:
        if each.on_sweep is not None:
            rows += [job.row for job in work.sweeps.jobs(each.on_sweep)]
    last = work.recovery.last_in_chain(rows) if rows else {}
    return sorted(work.jobs.by_row(list(last.values())).values(), key=lambda job: job.row)


def _ids(
    work: unit_of_work.UnitOfWork, live: Sequence[jobs.Job], all_jobs: Collection[jobs.Job]
) -> list[str]:
    """Return the IDs of the live jobs; the array's ID if all its tasks are in `all_jobs`."""
    tasks = collections.Counter(job.token for job in all_jobs)
    sizes = work.dependencies.array_sizes(list(tasks)) if tasks else {}
    return list(
        dict.fromkeys(
            str(job.array_job_id)
            if job.array_job_id is not None and tasks[job.token] == sizes[job.token]
            else str(job.job_id)
            for job in live
        )
    )
