"""The stored spec of a job, as the start of another one."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
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
    #: the spec is that of the whole array, of which some tasks were named
    is_part: bool
    #: where it was submitted
    folder: Path
    #: the file with the spec, or "flags"
    source: str
    script: str
    provenance: dict[str, object]


def find(
    context: contexts.Context, tasks: Sequence[jobs.Job], *, or_all: bool = False
) -> StoredSpec:
    """Return how tasks of one submission were submitted.

    or_all: the whole array, if only Slurm can give these tasks their numbers. Raises ConflictError
    for such tasks otherwise, and if orchestrator did not submit them.
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
    spec = _of_tasks(specs.from_json(submission.spec), tasks, name, or_all=or_all)
    return StoredSpec(
        name=name,
        spec=spec,
        is_part=spec.array.size is not None and len(tasks) < spec.array.size,
        folder=Path(submission.calling_folder),
        source=str(provenance["spec"]),
        script=submission.script,
        provenance=provenance,
    )


def _of_tasks(
    spec: jobs.JobSpec, tasks: Sequence[jobs.Job], name: str, *, or_all: bool
) -> jobs.JobSpec:
    numbers = [task.array_task_id for task in tasks if task.array_task_id is not None]
    whole = spec.array.task_ids
    if whole is None or numbers == list(whole):
        return spec
    if spec.array.tasks is None:
        if or_all:
            return spec
        array = tasks[0].array_job_id or shlex.quote(tasks[0].name)
        raise errors.ConflictError(
            f"{name} gets its number from SLURM_ARRAY_TASK_ID, which a job of its own does not "
            f"have. `orchestrator resubmit {shlex.quote(name)}` runs it again without changes, "
            f"`orchestrator submit --like {array}` the whole array."
        )
    if len(numbers) == 1:
        return arguments.of_task(spec, numbers[0])
    chosen = tuple(spec.array.tasks[number] for number in numbers)
    return dataclasses.replace(spec, array=dataclasses.replace(spec.array, tasks=chosen))


def working_folder(stored: StoredSpec) -> Path:
    """Return the folder in which the job started, or of which that was a copy."""
    return Path(os.path.normpath(stored.folder / (stored.spec.chdir or "")))
