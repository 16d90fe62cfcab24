"""What to say about a job whose run folder was pruned."""

from __future__ import annotations

import os

from orchestrator import jobs, prune
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming


def note(context: contexts.Context, job: jobs.Job) -> str:
    """Return that the run folder of a job was pruned, and when; "" if it was not."""
    if os.path.lexists(job.run_dir):
        return ""
    with context.store.reading() as work:
        mark = work.prune.marks([job.row]).get(job.row)
    if mark is None or mark.detail not in (prune.FOLDER, prune.ROWS):
        return ""
    return f"the run folder of {naming.name_of(job)} was pruned on {mark.at.astimezone():%Y-%m-%d}"
