"""How far an attempt came: from its newest checkpoint, else from the steps in its metrics."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
from pathlib import Path

from orchestrator import files, jobs, recovery
from orchestrator.controller.session import contexts
from orchestrator.files import run_folder

#: Names with a step: "checkpoint-0000000120.pt", "step_120", "global_step120", "120.ckpt".
_STEP = re.compile(r"(?:^|[-_.=]|step|checkpoint|ckpt|epoch)(?P<step>[0-9]{1,18})(?=[-_.]|$)")
#: Limit for checkpoints that consist of thousands of files.
_MAX_FILES = 10_000
#: Unfinished checkpoints, and those that a trainer could not read.
_UNUSABLE = re.compile(r"\.(?:draft|tmp|part|damaged)\b")


def checkpoint_folder(job: jobs.Job, spec: jobs.JobSpec, provenance: str) -> Path:
    """Return the folder of the program's checkpoints, which may not exist."""
    task = job.array_task_id
    folder = spec.retry.checkpoint_dir
    if folder is None:
        tasks = spec.array.tasks
        own = tasks[task] if tasks is not None and task is not None else {}
        for name, value in {**spec.args, **own}.items():
            if name.replace("-", "_") == "checkpoint_dir" and isinstance(value, str):
                folder = value
                break
    if folder is not None:
        return Path(str(json.loads(provenance)["folder"])) / (spec.chdir or "") / folder
    return run_folder.RunFolder(Path(job.run_dir)).checkpoints(task or 0, array=task is not None)


def measure(context: contexts.Context, job: jobs.Job, checkpoints: Path) -> recovery.Progress:
    """Return how far the newest attempt of the job came."""
    steps: list[int] = []
    times: list[float] = []
    with contextlib.suppress(OSError), os.scandir(checkpoints) as entries:
        for _, entry in zip(range(_MAX_FILES), entries, strict=False):
            if _UNUSABLE.search(entry.name):
                continue
            with contextlib.suppress(OSError):
                times.append(entry.stat().st_mtime)
            if match := _STEP.search(entry.name):
                steps.append(int(match["step"]))
    # The clocks of the file system and of Slurm may differ by some seconds.
    started_at = (job.started_at or job.created_at) - datetime.timedelta(seconds=5)
    saved = bool(times) and files.time_of(max(times)) > started_at
    step = max(steps, default=None)
    if step is None:
        with context.store.reading() as work:
            step = work.recovery.highest_step(job.row, job.attempt)
    return recovery.Progress(step=step, saved=saved)
