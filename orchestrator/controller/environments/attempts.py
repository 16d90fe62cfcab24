"""Environments of attempts: from the files of the run folders to the database, and to readers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator import environments, errors, files, jobs
from orchestrator.controller.session import contexts
from orchestrator.slurm import variables

#: Time for one refresh; the next one reads the rest.
READING_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptEnvironment:
    #: number of the attempt
    attempt: int
    environment: environments.Environment
    placement: environments.Placement


def read(path: Path, task: int, attempt: int) -> environments.Record | None:
    """Return what the script of an attempt recorded in the run folder; None: nothing so far."""
    try:
        content = files.read_bytes(
            path / f"environment.{task}.{attempt}", limit_bytes=environments.LIMIT_BYTES
        )
    except OSError:
        return None
    # The script resolves the path of a snapshot.
    text = content.decode(errors="replace").replace(os.path.realpath(path), str(path))
    record = environments.parse(text, str(path))
    kept = variables.without_secrets(record.environment.variables)
    environment = dataclasses.replace(record.environment, variables=kept)
    return dataclasses.replace(record, environment=environment)


def store(context: contexts.Context, unread: Sequence[jobs.UnreadEnvironment]) -> int:
    """Read and store the environments of these attempts; return the number of stored ones.

    What is not complete yet, and what there is no time to read, is left to the next refresh.
    """
    now = context.clock.now()
    deadline = context.deadline.within(READING_SECONDS)
    exposure = functools.cache(functools.partial(contexts.run_folder_exposure, context))
    stored: list[tuple[int, int, tuple[str, str] | None, str]] = []
    for each in unread:
        if deadline.is_over:
            break
        folder = Path(each.run_dir)
        record = None if exposure(folder) else read(folder, each.array_task, each.number)
        if not environments.is_final(
            record, started_at=each.started_at, ended_at=each.ended_at, now=now
        ):
            continue
        environment, placement = None, environments.Placement()
        if record is not None:
            document = environments.to_json(record.environment)
            environment, placement = (environments.sha256(document), document), record.placement
        stored.append((each.job_row, each.number, environment, environments.to_json(placement)))
    if stored:
        # If the disk is full, the next refresh reads them again.
        with contextlib.suppress(errors.DatabaseError), context.store.writing() as work:
            work.environments.put(stored)
    return len(stored)


def of_job(context: contexts.Context, job: jobs.Job) -> list[AttemptEnvironment]:
    """Return the environments of a job's attempts, the oldest first: stored ones, else from files.

    Attempts of which nothing is known are left out.
    """
    with context.store.reading() as work:
        stored = work.environments.of_job(job.row)
    folder = Path(job.run_dir)
    is_private = job.tracked_name is None and not contexts.run_folder_exposure(context, folder)
    known = []
    for number in range(job.attempt + 1):
        document, placement = stored.get(number, (None, ""))
        if document is not None:
            environment = environments.from_json(environments.Environment, document)
            where = environments.from_json(environments.Placement, placement)
        elif is_private and (record := read(folder, job.array_task_id or 0, number)):
            environment, where = record.environment, record.placement
        else:
            continue
        known.append(AttemptEnvironment(attempt=number, environment=environment, placement=where))
    return known


def others(context: contexts.Context, tasks: Sequence[jobs.Job]) -> list[jobs.Job]:
    """Return the tasks of which the newest attempt had another environment than the first's."""
    with context.store.reading() as work:
        digests = work.environments.of_newest_attempts([job.row for job in tasks])
    first = digests.get(tasks[0].row)
    return [job for job in tasks if first is not None and digests.get(job.row, first) != first]
