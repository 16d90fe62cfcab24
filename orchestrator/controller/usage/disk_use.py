"""Disk use of run folders, by submission and kind of file. Slurm is not queried."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import jobs, prune
from orchestrator.controller.session import contexts
from orchestrator.files import disk_use
from orchestrator.jobs import naming

#: Files that are examined at most.
MAX_FILES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderUse:
    """What the run folder of a job, or of an array, takes on disk."""

    #: the job, or the tasks of the array
    jobs: Sequence[jobs.Job]
    #: by kind
    sizes_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes_bytes.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiskUse:
    #: the largest first; without those that have no files
    folders: Sequence[FolderUse]
    #: submissions that were not examined because there are too many files
    unexamined: int
    #: code snapshots, which jobs share
    snapshots_bytes: int


def of(context: contexts.Context, query: jobs.JobQuery) -> DiskUse:
    """Return the disk use of the jobs that match, newest first until MAX_FILES are examined."""
    with context.store.reading() as work:
        submissions = naming.by_submission(work.jobs.find(query))
    examiner = disk_use.Examiner(MAX_FILES)
    runs_dirs = {Path(tasks[0].run_dir).parent for tasks in submissions}
    found: list[FolderUse] = []
    unexamined = 0
    for tasks in submissions:
        if examiner.is_over:
            unexamined += 1
            continue
        sizes = examiner.examine(Path(tasks[0].run_dir), prune.kind_of_file)
        unexamined += examiner.is_over
        if sizes:
            ordered = sorted(tasks, key=lambda job: job.array_task_id or 0)
            found.append(FolderUse(jobs=ordered, sizes_bytes=sizes))
    # Last: what a run folder has a hard link to is counted there.
    shared = [context.configuration.state_dir / "code", *(path / ".code" for path in runs_dirs)]
    return DiskUse(
        folders=sorted(found, key=lambda use: -use.total_bytes),
        unexamined=unexamined,
        snapshots_bytes=sum(map(examiner.size_bytes, shared)),
    )
