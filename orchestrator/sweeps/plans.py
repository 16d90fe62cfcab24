"""Plan submissions: points of one shape as job arrays, within Slurm's limits and max_running."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence

from orchestrator import jobs
from orchestrator.specs import arguments
from orchestrator.sweeps import records

_Arguments = Mapping[str, jobs.ArgumentValue]

#: slurmctld refuses scripts of 4 MiB (man slurm.conf, max_script_size).
MAX_ARGUMENTS_BYTES = 3 * 1024 * 1024
#: What a task takes in the script besides its arguments, with a number of seven digits.
_TASK_BYTES = 48


def plan(
    points: Sequence[records.Point],
    max_tasks: int,
    *,
    max_running: int | None = None,
    max_bytes: int = MAX_ARGUMENTS_BYTES,
) -> list[records.Submission]:
    """Plan the submissions of points, each once, in their order within a shape.

    `max_tasks` and `max_bytes`: tasks and bytes of arguments of one array. `max_running` limits
    each submission; jobs_to_wait_for() limits them together.
    """
    shapes: dict[str, list[records.Point]] = {}
    for point in points:
        shapes.setdefault(point.shape.key, []).append(point)
    return [
        records.Submission(spec=_spec(chunk, max_running), points=tuple(chunk))
        for group in shapes.values()
        for chunk in _chunks(group, max_tasks, max_bytes)
    ]


def _chunks(
    points: Sequence[records.Point], max_tasks: int, max_bytes: int
) -> Iterator[Sequence[records.Point]]:
    shared = _shared([point.spec.args for point in points])
    chunk: list[records.Point] = []
    total_bytes = 0
    for point in points:
        size_bytes = _size_bytes(point.spec, shared)
        if chunk and (len(chunk) == max_tasks or total_bytes + size_bytes > max_bytes):
            yield chunk
            chunk, total_bytes = [], 0
        chunk.append(point)
        total_bytes += size_bytes
    yield chunk


def _size_bytes(spec: jobs.JobSpec, shared: _Arguments) -> int:
    """Estimate what a task's own arguments take in the script."""
    words = arguments.shared(dataclasses.replace(spec, args=_without(spec.args, shared)))
    return _TASK_BYTES + sum(len(shlex.quote(word).encode()) + 1 for each in words for word in each)


def _shared(tasks: Sequence[_Arguments]) -> _Arguments:
    """Return the arguments that are equal in all tasks; 1, 1.0 and true are different words."""
    return {
        key: value
        for key, value in tasks[0].items()
        if all(key in task and repr(task[key]) == repr(value) for task in tasks)
    }


def _without(args: _Arguments, names: Container[str]) -> _Arguments:
    return {key: value for key, value in args.items() if key not in names}


def _spec(points: Sequence[records.Point], max_running: int | None) -> jobs.JobSpec:
    """Return the job of these points: shared arguments in `[args]`, the others by task."""
    spec = points[0].spec
    if len(points) == 1:
        return spec
    shared = _shared([point.spec.args for point in points])
    tasks = tuple(_without(point.spec.args, shared) for point in points)
    throttle = None if max_running is None or max_running >= len(points) else max_running
    array = jobs.Array(size=len(points), max_running=throttle)
    if any(tasks):
        array = jobs.Array(tasks=tasks, max_running=throttle)
    return dataclasses.replace(spec, args=shared, array=array)


def jobs_to_wait_for(
    live: Sequence[tuple[str, int]], tasks: int, max_running: int
) -> tuple[str, ...]:
    """Return the jobs after whose end a submission may start, to keep `max_running`.

    `live`: job IDs and unfinished tasks in the order of submission, each with dependencies by this
    rule. A submission may run beside those that are not returned; of submissions that run together,
    the newest may run beside all others, so they have at most `max_running` tasks. Slurm throttles
    the tasks of one array.
    """
    beside = _beside(live, tasks, max_running)
    if beside == len(live):
        return ()
    # The newest of the earlier ones depends on all but those that it may run beside.
    *earlier, (last_id, last_tasks) = live[: len(live) - beside]
    window = _beside(earlier, last_tasks, max_running)
    return (*(job_id for job_id, _ in earlier[len(earlier) - window :]), last_id)


def _beside(live: Sequence[tuple[str, int]], tasks: int, max_running: int) -> int:
    """Return how many of the newest submissions may run beside one with so many tasks."""
    remaining, count = max_running - min(tasks, max_running), 0
    for _, live_tasks in reversed(live):
        remaining -= min(live_tasks, max_running)
        if remaining < 0:
            break
        count += 1
    return count
