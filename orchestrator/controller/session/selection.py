"""The jobs that a user names: by references, by name and label, or as points of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts, queries
from orchestrator.jobs import naming


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """The jobs that something is to be done with."""

    references: Sequence[str] = ()
    #: of live jobs
    names: Sequence[str] = ()
    labels: Sequence[str] = ()
    sweeps: Sequence[str] = ()

    def find(self, context: contexts.Context, *, with_ended: bool = False) -> list[jobs.Job]:
        """Return the selected jobs, each once. RequestError if nothing is selected.

        with_ended: a sweep selects all its points; otherwise only its live jobs.
        """
        chosen = [job for reference in self.references for job in jobs_of(context, reference)]
        if self.names or self.labels:
            live = queries.list_jobs(
                context, jobs.JobQuery(names=self.names, labels=self.labels, live=True, limit=None)
            )[0]
            if not live and not chosen:
                words = ", ".join([*self.names, *self.labels])
                raise errors.NotFoundError(f"no live job has the name or label {words}")
            chosen += live
        elif not self.references and not self.sweeps:
            raise errors.RequestError(
                "specify jobs, or select them with --name, --label or --sweep"
            )
        for sweep in self.sweeps:
            points = _jobs_of_sweep(context, sweep, all_points=with_ended)
            chosen += [job for job in points if with_ended or not job.ended]
        if self.sweeps and not chosen and not with_ended:
            raise errors.NotFoundError(f"no job of {', '.join(self.sweeps)} is live")
        return list({job.row: job for job in chosen}.values())


def sweep_names_and_rows(
    context: contexts.Context, references: Sequence[str]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names, and the rows of the sweeps named `@3`. NotFoundError for an unknown one."""
    if not references:
        return (), ()
    from orchestrator.controller.sweeps import queries

    found = {reference: queries.find(context, reference) for reference in references}
    names = tuple(word for word in references if not word.startswith("@"))
    return names, tuple(sweep.row for word, sweep in found.items() if word.startswith("@"))


def jobs_of(context: contexts.Context, reference: str) -> list[jobs.Job]:
    """Return the job that `reference` names, or the tasks of the array in their order.

    Raises NotFoundError, or ConflictError with the list if several live jobs match.
    """
    matching = queries.find(context, reference)
    if not matching:
        near = queries.nearest_name(context, reference)
        suggestion = f". Did you mean {near!r}?" if near else ""
        raise errors.NotFoundError(
            f"job {reference!r} not found: `orchestrator status --all` lists all jobs{suggestion}"
        )
    live = [job for job in matching if not job.ended]
    if len({job.token for job in live}) > 1:
        names = "\n".join(f"  {job.job_id or '-'}  @{job.row}  {job.state}" for job in live)
        raise errors.ConflictError(f"{len(live)} live jobs are named {reference}:\n{names}")
    token = (live or matching)[0].token
    tasks = [job for job in matching if job.token == token]
    return sorted(tasks, key=lambda job: job.array_task_id or 0)


def one_job(context: contexts.Context, reference: str) -> jobs.Job:
    """Return the job or the array task that `reference` names.

    Raises what jobs_of() raises, and ConflictError for several tasks.
    """
    tasks = jobs_of(context, reference)
    if len(tasks) > 1:
        raise errors.ConflictError(
            f"{reference} names {len(tasks)} tasks of an array: name one of them, such as "
            f"{naming.name_of(tasks[0])}"
        )
    return tasks[0]


def jobs_and_sweeps(
    context: contexts.Context, references: Sequence[str], sweeps: Sequence[str]
) -> list[jobs.Job]:
    """Return the named jobs and all jobs of the sweeps, each once. RequestError: none is named."""
    if not references and not sweeps:
        raise errors.RequestError("specify jobs, or a sweep with --sweep")
    named = [job for reference in references for job in jobs_of(context, reference)]
    for sweep in sweeps:
        named += _jobs_of_sweep(context, sweep, all_points=False)
    return list({job.row: job for job in named}.values())


def _jobs_of_sweep(
    context: contexts.Context, reference: str, *, all_points: bool
) -> list[jobs.Job]:
    """Return the newest job of each point. ConflictError if `all_points` and some have none."""
    from orchestrator.controller.sweeps import queries

    sweep = queries.find(context, reference)
    points = queries.points(context, sweep)
    unsubmitted = sum(point.job is None for point in points)
    if all_points and unsubmitted and sweep.state == "open":
        raise errors.ConflictError(
            f"{unsubmitted} of {len(points)} points of {sweep.name} are not submitted: "
            f"`orchestrator sweep resume @{sweep.row}` submits them"
        )
    return [point.job for point in points if point.job is not None]
