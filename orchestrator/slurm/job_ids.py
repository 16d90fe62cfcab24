"""Slurm's job IDs: `123`, `123_4`, `123_[1,3-5%2]`, `123+0`, each with or without a step."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from orchestrator.jobs import naming

# Forms measured on 22.05, 24.11 and 26.05. Without SLURM_BITSTR_LEN=0 the list of tasks is cut at
# 64 bytes ("1,3-...").
_JOB_ID = re.compile(
    r"(?P<job>\d{1,10})"
    r"(?:_(?P<task>\d{1,10})|_\[(?P<tasks>[\d,:\-]+(?:\.\.\.)?)(?:%(?P<limit>\d+))?\]"
    r"|\+(?P<component>\d{1,10}))?"
    r"(?:\.(?P<step>batch|extern|interactive|\d+))?",
    re.ASCII,
)
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
#: The upper bound of MaxArraySize (man slurm.conf).
_MAX_TASKS = 4_000_001
#: One argument holds 128 KiB (MAX_ARG_STRLEN, man execve); a range has at most 16 characters.
_RANGES_PER_ARGUMENT = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobId:
    #: "123", "123_4", "123+0": the job or array task, without its step
    text: str
    #: the number before `_`; None for a job that is not an array
    array_job_id: str | None = None
    array_task_id: int | None = None
    #: the pending tasks of an array that Slurm prints as one record: "1,3-5"
    pending_tasks: str | None = None
    #: "batch", "extern", "0"
    step: str | None = None


def parse_job_id(raw: str) -> JobId:
    """Parse a job ID; raises ValueError for anything else."""
    match = _JOB_ID.fullmatch(raw.strip())
    if match is None:
        raise ValueError(f"not a Slurm job ID: {raw!r}")
    job, task, tasks, step = match["job"], match["task"], match["tasks"], match["step"]
    if tasks is not None:
        return JobId(text=job, array_job_id=job, pending_tasks=tasks, step=step)
    if task is not None:
        text = f"{job}_{int(task)}"
        return JobId(text=text, array_job_id=job, array_task_id=int(task), step=step)
    component = match["component"]
    return JobId(text=job if component is None else f"{job}+{component}", step=step)


def each_task(job_id: JobId) -> Iterator[JobId]:
    """Yield the job itself, or each pending task of its array."""
    if job_id.pending_tasks is None:
        yield job_id
        return
    for task in expand_tasks(job_id.pending_tasks):
        text = f"{job_id.text}_{task}"
        yield JobId(text=text, array_job_id=job_id.array_job_id, array_task_id=task)


def array_arguments(array_job_id: str, tasks: Iterable[int]) -> list[str]:
    """Return tasks of an array as arguments for Slurm's commands: `12_[1,3-5]`."""
    ranges = naming.fold_tasks(tasks).split(",")
    return [
        f"{array_job_id}_[{','.join(ranges[start : start + _RANGES_PER_ARGUMENT])}]"
        for start in range(0, len(ranges), _RANGES_PER_ARGUMENT)
    ]


def expand_tasks(text: str) -> Iterator[int]:
    """Yield the numbers of `1,3-5,10-16:3`; raises ValueError if the list is cut or invalid."""
    invalid = ValueError(f"not a list of array tasks: {text[:80]!r}")
    remaining = _MAX_TASKS
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise invalid
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        remaining -= max(1, last - first + 1)
        if step == 0 or remaining < 0:
            raise invalid
        yield from range(first, last + 1, step)
