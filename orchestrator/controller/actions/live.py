"""Jobs that are looked at again and again, until they have ended."""

from __future__ import annotations

import contextlib

from orchestrator import errors, jobs
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import contexts


def update(context: contexts.Context, by_row: dict[int, jobs.Job]) -> bool:
    """Bring the jobs up to date, asking Slurm when that is due; whether one has not ended yet."""
    with contextlib.suppress(errors.DatabaseError):
        # Said nowhere: a log is followed on a full disk too, and the next look may go well.
        refresh.refresh(context)
    with context.store.reading() as work:
        found = work.jobs.find(jobs.JobQuery(rows=list(by_row), limit=None))
    by_row.update((job.row, job) for job in found)
    return any(not job.ended for job in found)
