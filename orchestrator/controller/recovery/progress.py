"""How far an attempt came: its newest checkpoint, else the steps that it told."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from pathlib import Path

from orchestrator import files, jobs, recovery
from orchestrator.controller.session import contexts
from orchestrator.tracking import run_folder

#: Names that tell their step: "checkpoint-0000000120.pt", "step_120", "global_step120", "120.ckpt".
_STEP = re.compile(r"(?:^|[-_.=]|step|checkpoint|ckpt|epoch)(?P<step>[0-9]{1,18})(?=[-_.]|$)")
#: Of checkpoints that hold thousands of files these are looked at.
_MOST_FILES = 10_000
#: A draft is no checkpoint yet, and what was found damaged is none any more.
_NO_CHECKPOINT = re.compile(r"\.(?:draft|tmp|part|damaged)\b")


def folder_of(job: jobs.Job, spec: jobs.JobSpec, provenance: str) -> Path:
    """Return the folder of the program's checkpoints, be it there or not."""
    called_in = Path(str(json.loads(provenance)["folder"]))
    named = spec.retry.checkpoint_dir or _argument(job, spec)
    if named is not None:
        return called_in / (spec.chdir or "") / named
    task = job.array_task_id
    folder = run_folder.RunFolder(Path(job.run_dir))
    return folder.checkpoints(task or 0, array=task is not None)


def _argument(job: jobs.Job, spec: jobs.JobSpec) -> str | None:
    tasks, task = spec.array.tasks, job.array_task_id
    own = tasks[task] if tasks is not None and task is not None else {}
    for name, value in {**spec.args, **own}.items():
        if name.replace("-", "_") == "checkpoint_dir" and isinstance(value, str):
            return value
    return None


def of(context: contexts.Context, job: jobs.Job, checkpoints: Path) -> recovery.Progress:
    """Return how far the newest attempt of the job came."""
    step, written_at = _newest(checkpoints)
    began = job.started_at or job.created_at
    # The clocks of the file system and of Slurm may differ by some seconds.
    saved = written_at is not None and written_at > began - datetime.timedelta(seconds=5)
    if step is None:
        with context.store.reading() as work:
            step = work.recovery.highest_step(job.row, job.attempt)
    return recovery.Progress(step=step, saved=saved)


def _newest(folder: Path) -> tuple[int | None, datetime.datetime | None]:
    """Return the highest step that a name tells, and when the newest file was written."""
    steps: list[int] = []
    stamps: list[float] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_FILES), entries, strict=False):
            if _NO_CHECKPOINT.search(entry.name):
                continue
            with contextlib.suppress(OSError):
                stamps.append(entry.stat().st_mtime)
            if found := _STEP.search(entry.name):
                steps.append(int(found["step"]))
    newest = files.time_of(max(stamps)) if stamps else None
    return max(steps, default=None), newest
