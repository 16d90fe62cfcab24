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

#: After so many failed requests Slurm is regarded as down, and the next pass continues.
MAX_FAILURES = 3


def update(context: contexts.Context) -> list[str]:
    """Set dependencies to the jobs that continue failed ones; return one message per change."""
    with context.store.reading() as work:
        rows = work.dependencies.dependents()
    messages: list[str] = []
    failures = 0
    for row in rows:
        context.guard.check()
        with context.store.reading() as work:
            job = work.jobs.get(row)
            assert job is not None, "rows are never deleted"
            name = f"{job.job_id or f'@{job.row}'} {job.name}"
            status = dependencies.status_of(work, row)
            stored = work.dependencies.of(row)
            newest = {each.id: dependencies.continuation(work, each.dependency) for each in stored}
            submission = work.jobs.submission_of(row)
            is_reported = "never" in {event.kind for event in work.events.of_job(row)}
            is_open = _is_open(work, job)
            try:
                spec = specs.from_json(submission.spec)
            except errors.SpecError as error:
                problem = error.problems[0]
                messages.append(f"{name} is skipped, another version wrote its spec: {problem}")
                continue
            own, _ = dependency.split(spec.dependency)
            text = dependencies.text(work, spec, job, status) or own or ""
        if status.never and not is_reported:
            detail = f"it can never start: {status.never[0]}"
            with context.store.writing() as work:
                work.events.add(row, context.event("never", detail, source="controller"))
            messages.append(f"{name}: {detail}")
        changed = [each.id for each in stored if newest[each.id] not in (None, each.continuation)]
        # If the user gave job IDs, one of these jobs may have failed.
        is_repeated = job.reason == dependency.NEVER_SATISFIED and not own
        if not changed and not is_repeated:
            continue
        if status.never or status.unsent or job.scheduler != "slurm" or not is_open:
            continue
        slurm_context = context.with_scheduler(job.scheduler)
        if job.cluster != clusters.facts(slurm_context).cluster:
            continue
        job_id = job.array_job_id or job.job_id
        assert job_id is not None, "Slurm has the job"
        context.guard.confirm_lease()
        try:
            slurm_context.slurm.set_dependency(job_id, text)
        except errors.SlurmError as error:
            # The job may have started or ended at this moment.
            messages.append(f"{job_id} {job.name}: the dependency could not be changed: {error}")
            failures += 1
            if failures == MAX_FAILURES:
                break
            continue
        why = "the continuation job" if changed else "the failed job was started again"
        detail = f"now depends on {text or 'nothing'}: {why}"
        with context.store.writing() as work:
            for dependency_id in changed:
                work.dependencies.set_continuation(dependency_id, newest[dependency_id] or 0)
            # The next refresh shows the new reason.
            work.jobs.change(row, {"reason": None}, version=job.version)
            work.events.add(row, context.event("depend", detail, source="controller"))
        messages.append(f"{job_id} {job.name} {detail}")
    return messages


def _is_open(work: unit_of_work.UnitOfWork, job: jobs.Job) -> bool:
    """Return whether all points of its sweep's baseline are in Slurm or completed."""
    if job.sweep is None:
        return True
    before = queries.prerequisites_of(work, job.row, len(work.jobs.tasks(job.token)))
    return not before.failed and not before.unsent
