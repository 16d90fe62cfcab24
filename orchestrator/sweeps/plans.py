"""Plan submissions: points of one shape as job arrays, within Slurm's limits and max_running."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence

from orchestrator import config, jobs
from orchestrator.specs import arguments
from orchestrator.sweeps import records, resources

#: By flag: name and value of an argument.
_Arguments = Mapping[str, tuple[str, jobs.ArgumentValue]]

#: What a task takes in the script besides its arguments, with a number of seven digits.
_TASK_BYTES = 48


def plan(
    points: Sequence[records.Point],
    limits: records.Limits,
    profile: config.Profile,
    *,
    max_running: int | None = None,
) -> records.Plan:
    """Plan the submissions of points, each once, in their order within a shape.

    `max_running` limits each submission; jobs_to_wait_for() limits them together.
    """
    shapes: dict[str, list[records.Point]] = {}
    for point in points:
        shapes.setdefault(point.shape, []).append(point)
    submissions = [
        records.Submission(spec=_spec(chunk, max_running), points=tuple(chunk))
        for group in shapes.values()
        for chunk in _chunks(group, limits)
    ]
    totals = resources.total((point.spec for point in points), profile)
    return records.Plan(submissions=tuple(submissions), totals=totals)


def _chunks(
    points: Sequence[records.Point], limits: records.Limits
) -> Iterator[Sequence[records.Point]]:
    # The largest index is MaxArraySize - 1 (man slurm.conf), and tasks count from 0.
    most = max(1, min(limits.max_array_size, limits.max_tasks or limits.max_array_size))
    shared = _shared([_by_flag(point.spec) for point in points])
    chunk: list[records.Point] = []
    total_bytes = 0
    for point in points:
        size_bytes = _size_bytes(point.spec, shared)
        is_full = len(chunk) == most or total_bytes + size_bytes > limits.max_arguments_bytes
        if chunk and is_full:
            yield chunk
            chunk, total_bytes = [], 0
        chunk.append(point)
        total_bytes += size_bytes
    yield chunk


def _size_bytes(spec: jobs.JobSpec, shared: _Arguments) -> int:
    """Estimate what a task's own arguments take in the script."""
    own = {key: value for flag, (key, value) in _by_flag(spec).items() if flag not in shared}
    words = arguments.shared(dataclasses.replace(spec, args=own))
    return _TASK_BYTES + sum(len(shlex.quote(word).encode()) + 1 for each in words for word in each)


def _shared(tasks: Sequence[_Arguments]) -> _Arguments:
    """Return the arguments that are equal in all tasks; 1, 1.0 and true are different words."""
    return {
        flag: (key, value)
        for flag, (key, value) in tasks[0].items()
        if all(flag in task and repr(task[flag][1]) == repr(value) for task in tasks)
    }


def _by_flag(spec: jobs.JobSpec) -> _Arguments:
    return {arguments.flag(key): (key, value) for key, value in spec.args.items()}


def _spec(points: Sequence[records.Point], max_running: int | None) -> jobs.JobSpec:
    """Return the job of these points: shared arguments in `[args]`, the others by task."""
    spec = points[0].spec
    if len(points) == 1:
        return spec
    by_flag = [_by_flag(point.spec) for point in points]
    shared = _shared(by_flag)
    tasks = tuple(
        {key: value for flag, (key, value) in task.items() if flag not in shared}
        for task in by_flag
    )
    throttle = None if max_running is None or max_running >= len(points) else max_running
    array = jobs.Array(size=len(points), max_running=throttle)
    if any(tasks):
        array = jobs.Array(tasks=tasks, max_running=throttle)
    return dataclasses.replace(spec, args=dict(shared.values()), array=array)


def jobs_to_wait_for(
    live: Sequence[records.LiveSubmission], tasks: int, max_running: int
) -> tuple[str, ...]:
    """Return the jobs after whose end a submission may start, to keep `max_running`.

    `live` is in the order of submission, each with dependencies by this rule. A submission may run
    beside those that are not returned; of submissions that run together, the newest may run beside
    all others, so they have at most `max_running` tasks. Slurm throttles the tasks of one array.
    """
    beside = _beside(live, tasks, max_running)
    if beside == len(live):
        return ()
    # The newest of the earlier ones depends on all but those that it may run beside.
    earlier = live[: len(live) - beside]
    window = _beside(earlier[:-1], earlier[-1].tasks, max_running)
    return tuple(submission.job_id for submission in earlier[len(earlier) - 1 - window :])


def _beside(live: Sequence[records.LiveSubmission], tasks: int, max_running: int) -> int:
    """Return how many of the newest submissions may run beside one with so many tasks."""
    left, count = max_running - min(tasks, max_running), 0
    for submission in reversed(live):
        left -= min(submission.tasks, max_running)
        if left < 0:
            break
        count += 1
    return count
