"""Dependents that are pending in Slurm: after a failure they depend on the continuation job.

A dependent that can never start is reported. After a failed job was requeued under its ID, Slurm
keeps the reason DependencyNeverSatisfied of its dependents, even when the job has completed
(22.05, 24.11, 26.05), until the dependency is set again.
"""

from __future__ import annotations

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.session import clusters, contexts
from orchestrator.controller.submission import dependencies
from orchestrator.controller.sweeps import queries
from orchestrator.jobs import dependency

#: After so many Slurm is taken to be away, and the rest waits for the next pass.
MOST_FAILURES = 3


def update(context: contexts.Context) -> list[str]:
    """Set dependencies on the jobs that continue failed ones; returns what was done, as lines."""
    with context.store.reading() as work:
        dependents = work.dependencies.dependents()
    told: list[str] = []
    failed = 0
    for row in dependents:
        context.guard.check()
        with context.store.reading() as work:
            job = work.jobs.get(row)
            assert job is not None, "rows are never deleted"
            status = dependencies.status_of(work, row)
            stored = work.dependencies.of(row)
            newest = {each.id: dependencies.continuation(work, each.dependency) for each in stored}
            submission = work.jobs.submission_of(row)
            told_already = "never" in {event.kind for event in work.events.of_job(row)}
            is_open = _is_open(work, job)
            try:
                spec = specs.from_json(submission.spec)
            except errors.SpecError as exc:
                why = "another version wrote its spec"
                told.append(f"{_named(job)} is not looked at, {why}: {exc.problems[0]}")
                continue
            own, _ = dependency.split(spec.dependency)
            text = dependencies.text(work, spec, job) or own or ""
        if status.never and not told_already:
            told += _tell_never(context, job, status)
        changed = [each.id for each in stored if newest[each.id] not in (None, each.continuation)]
        # With IDs that the user gave, one of those jobs may have failed.
        again = job.reason == dependency.NEVER_SATISFIED and not own
        if not changed and not again:
            continue
        if status.never or status.unsent or job.scheduler != "slurm" or not is_open:
            continue
        there = context.with_scheduler(job.scheduler)
        if job.cluster != clusters.facts(there).cluster:
            continue
        job_id = job.array_job_id or job.job_id
        assert job_id is not None, "asked for where it is known"
        context.guard.confirm_lease()
        try:
            there.slurm.set_dependency(job_id, text)
        except errors.SlurmError as exc:
            # It may have started or ended just now; the others are not kept from it.
            told.append(f"{job_id} {job.name} is not turned to the job that goes on: {exc}")
            failed += 1
            if failed == MOST_FAILURES:
                break
            continue
        with context.store.writing() as work:
            for number in changed:
                work.dependencies.set_continuation(number, newest[number] or 0)
            # Until Slurm is asked again it is not known why it waits.
            work.jobs.change(row, {"reason": None}, version=job.version)
            why = "the job that goes on" if changed else "what had failed was started again"
            detail = f"waits for {text or 'nothing more'}: {why}"
            event = jobs.JobEvent(
                at=context.clock.now(), kind="depend", source="controller", detail=detail
            )
            work.events.add(row, event)
        told.append(f"{job_id} {job.name} {detail}")
    return told


def _is_open(work: unit_of_work.UnitOfWork, job: jobs.Job) -> bool:
    """Return whether all points of its sweep's baseline are in Slurm or completed."""
    if job.sweep is None:
        return True
    before = queries.prerequisites_of(work, job.row, len(work.jobs.tasks(job.token)))
    return not before.failed and not before.unsent


def _tell_never(context: contexts.Context, job: jobs.Job, status: dependency.Status) -> list[str]:
    detail = f"it can never start: {status.never[0]}"
    event = jobs.JobEvent(at=context.clock.now(), kind="never", source="controller", detail=detail)
    with context.store.writing() as work:
        work.events.add(job.row, event)
    return [f"{_named(job)}: {detail}"]


def _named(job: jobs.Job) -> str:
    return f"{job.job_id or f'@{job.row}'} {job.name}"
