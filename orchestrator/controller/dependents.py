"""Jobs that wait in Slurm for others: turned to who goes on where one failed, told if none does.

Of one that failed and was requeued under its ID Slurm goes on saying that who waits for its good
end waits in vain, also when it has come (22.05, 24.11, 26.05): Slurm has to be told anew.
"""

from __future__ import annotations

from orchestrator import errors, jobs, specs
from orchestrator.controller import context as contexts
from orchestrator.controller import dependency_rows, turns, unit_of_work
from orchestrator.jobs import dependency

#: After so many Slurm is taken to be away, and the rest waits for the next pass.
MOST_FAILURES = 3


def turn(context: contexts.Context) -> list[str]:
    """Let what waits for a job that failed wait for the one that goes on; tell what never can."""
    with context.store.reading() as work:
        dependents = work.dependencies.dependents()
    told: list[str] = []
    failed = 0
    for row in dependents:
        context.proceed()
        with context.store.reading() as work:
            job = work.jobs.get(row)
            assert job is not None, "rows are never deleted"
            standing = work.dependencies.standing_of(row)
            stored = work.dependencies.of(row)
            newest = {one.id: work.dependencies.newest(one.depends) for one in stored}
            submission = work.jobs.submission_of(row)
            assert submission is not None, "each job belongs to one (foreign key)"
            told_already = "never" in {event.kind for event in work.events.of_job(row)}
            is_open = _is_open(work, job)
            try:
                spec = specs.from_json(submission.spec)
            except errors.SpecError as exc:
                why = "another version wrote its spec"
                told.append(f"{_named(job)} is not looked at, {why}: {exc.problems[0]}")
                continue
            own, _ = dependency.split(spec.dependency)
            text = turns.text(work, spec, job) or own or ""
        if standing.never and not told_already:
            told += _tell_never(context, job, standing)
        turned = [one for one in stored if newest[one.id] not in (None, one.turned_to)]
        # With IDs of the user's own it may be one of those that failed.
        again = job.reason == dependency_rows.IN_VAIN and not own
        if not turned and not again:
            continue
        if standing.never or standing.unsent or job.scheduler != "slurm" or not is_open:
            continue
        there = contexts.at(context, job.scheduler)
        if job.cluster != contexts.cluster_facts(there).cluster:
            continue
        job_id = job.array_job_id or job.job_id
        assert job_id is not None, "asked for where it is known"
        context.confirm()
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
            for one in turned:
                work.dependencies.turn([one], newest[one.id] or 0)
            # Until Slurm is asked again it is not known why it waits.
            work.jobs.change(row, {"reason": None}, version=job.version)
            why = "the job that goes on" if turned else "what had failed was started again"
            detail = f"waits for {text or 'nothing more'}: {why}"
            event = jobs.JobEvent(
                at=context.clock(), kind="depend", source="controller", detail=detail
            )
            work.events.add(row, event)
        told.append(f"{job_id} {job.name} {detail}")
    return told


def _is_open(work: unit_of_work.UnitOfWork, job: jobs.Job) -> bool:
    """Tell whether none of the points that its sweep begins with has failed for good, or as yet."""
    if job.sweep is None:
        return True
    turn = work.sweeps.turn_of(job.row, len(work.jobs.tasks(job.token)))
    return not turn.failed and not turn.unsent


def _tell_never(
    context: contexts.Context, job: jobs.Job, standing: dependency.Standing
) -> list[str]:
    detail = f"it can never start: {standing.never[0]}"
    event = jobs.JobEvent(at=context.clock(), kind="never", source="controller", detail=detail)
    with context.store.writing() as work:
        work.events.add(job.row, event)
    return [f"{_named(job)}: {detail}"]


def _named(job: jobs.Job) -> str:
    return f"{job.job_id or f'@{job.row}'} {job.name}"
