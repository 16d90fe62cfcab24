"""Slurm's job IDs: `123`, `123_4`, `123_[1,3-5%2]`, `123+0`, each with or without a step."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from orchestrator.jobs import naming

# Forms measured on 22.05, 24.11 and 26.05; the list is cut at 64 bytes ("1,3-...") unless
# SLURM_BITSTR_LEN=0.
_JOB_ID = re.compile(
    r"(?P<job>\d{1,10})"
    r"(?:_(?P<task>\d{1,10})|_\[(?P<tasks>[\d,:\-]+(?:\.\.\.)?)(?:%(?P<limit>\d+))?\]"
    r"|\+(?P<component>\d{1,10}))?"
    r"(?:\.(?P<step>batch|extern|interactive|\d+))?",
    re.ASCII,
)
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
#: Slurm's own bound of MaxArraySize (man slurm.conf): no list is longer.
_MOST_TASKS = 4_000_001
#: Of at most 16 characters each (MAX_ARG_STRLEN of Linux, man execve).
_RANGES_AT_ONCE = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobId:
    """A job ID taken apart."""

    #: "123", "123_4", "123+0": the job or array task, without its step
    text: str
    #: the number before `_`; none for a job that is no array
    array_job_id: str | None = None
    array_task_id: int | None = None
    #: the tasks of an array that still wait as one record, as printed: "1,3-5"
    waiting_tasks: str | None = None
    #: "batch", "extern", "0"
    step: str | None = None


def parse_job_id(raw: str) -> JobId:
    """Take a job ID apart; ValueError for anything else."""
    found = _JOB_ID.fullmatch(raw.strip())
    if found is None:
        raise ValueError(f"not a Slurm job ID: {raw!r}")
    job, task, tasks, step = found["job"], found["task"], found["tasks"], found["step"]
    if tasks is not None:
        return JobId(text=job, array_job_id=job, waiting_tasks=tasks, step=step)
    if task is not None:
        return JobId(
            text=f"{job}_{int(task)}", array_job_id=job, array_task_id=int(task), step=step
        )
    component = found["component"]
    return JobId(text=job if component is None else f"{job}+{component}", step=step)


def each_task(job_id: JobId) -> Iterator[JobId]:
    """Yield the job itself, or each array task that it still stands for."""
    if job_id.waiting_tasks is None:
        yield job_id
        return
    for task in expand_tasks(job_id.waiting_tasks):
        yield JobId(
            text=f"{job_id.text}_{task}", array_job_id=job_id.array_job_id, array_task_id=task
        )


def words_of_tasks(array_job_id: str, tasks: Iterable[int]) -> list[str]:
    """Return the tasks of an array as arguments of Slurm's commands, `12_[1,3-5]`.

    They are several where the tasks lie scattered: one argument has 128 KiB at the most.
    """
    ranges = naming.fold_tasks(tasks).split(",")
    return [
        f"{array_job_id}_[{','.join(ranges[start : start + _RANGES_AT_ONCE])}]"
        for start in range(0, len(ranges), _RANGES_AT_ONCE)
    ]


def expand_tasks(text: str) -> Iterator[int]:
    """Yield the numbers of `1,3-5,10-16:3`; ValueError where the list is cut short or senseless."""
    remaining = _MOST_TASKS
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"not a list of array tasks: {text[:80]!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        step = int(found[3] or 1)
        remaining -= max(1, last - first + 1)
        if step == 0 or remaining < 0:
            raise ValueError(f"not a list of array tasks: {text[:80]!r}")
        yield from range(first, last + 1, step)
