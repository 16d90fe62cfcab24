"""The stored spec of a job, as the start of another one."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator import errors, jobs, specs
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.specs import arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredSpec:
    """How a job, an array, or some of its tasks were submitted."""

    #: of the job, for messages
    name: str
    #: of a single task: without the array, with the arguments of the task
    spec: jobs.JobSpec
    #: where it was submitted
    folder: Path
    #: the file with the spec, or "flags"
    source: str
    script: str
    provenance: dict[str, object]


def find(context: contexts.Context, tasks: Sequence[jobs.Job]) -> StoredSpec:
    """Return how tasks of one submission were submitted.

    Raises ConflictError if orchestrator did not submit them, and for some of the tasks of an array
    that get their number from Slurm.
    """
    name = naming.names_of(tasks)
    if tasks[0].tracked_name is not None:
        raise errors.ConflictError(
            f"{name} was not submitted by orchestrator, so its spec is not known. "
            f"`orchestrator show {naming.name_of(tasks[0])} --script` prints its script if Slurm "
            "had it."
        )
    with context.store.reading() as work:
        submission = work.jobs.submission_of(tasks[0].row)
    provenance = json.loads(submission.provenance)
    return StoredSpec(
        name=name,
        spec=_of_tasks(specs.from_json(submission.spec), tasks, name),
        folder=Path(submission.calling_folder),
        source=str(provenance["spec"]),
        script=submission.script,
        provenance=provenance,
    )


def _of_tasks(spec: jobs.JobSpec, tasks: Sequence[jobs.Job], name: str) -> jobs.JobSpec:
    numbers = [task.array_task_id for task in tasks if task.array_task_id is not None]
    whole = spec.array.task_ids
    if whole is None or numbers == list(whole):
        return spec
    if spec.array.tasks is None:
        raise errors.ConflictError(
            f"{name} gets its number from SLURM_ARRAY_TASK_ID, which a job of its own does not "
            f"have: name the whole array, {tasks[0].array_job_id or naming.name_of(tasks[0])}"
        )
    if len(numbers) == 1:
        return arguments.of_task(spec, numbers[0])
    chosen = tuple(spec.array.tasks[number] for number in numbers)
    return dataclasses.replace(spec, array=dataclasses.replace(spec.array, tasks=chosen))


def working_folder(stored: StoredSpec) -> Path:
    """Return the folder in which the job started, or of which that was a copy."""
    return Path(os.path.normpath(stored.folder / (stored.spec.chdir or "")))
