"""How points are submitted: those of one shape as job arrays, within Slurm's limits."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeAlias

from orchestrator import config, jobs
from orchestrator.specs import arguments
from orchestrator.sweeps import records, resources

#: An argument's name and value.
_Pair: TypeAlias = tuple[str, jobs.ArgumentValue]

#: The rest of a task's lines in the script, with a number of seven digits.
_TASK_BYTES = 48


def plan(
    points: Sequence[records.Point],
    limits: records.Limits,
    profile: config.Profile,
    *,
    max_running: int | None = None,
) -> records.Plan:
    """Return what to submit for these points: each of them once, in their order within a shape.

    `max_running` is that of the sweep: here it limits each submission; `order` limits them all.
    """
    submissions = [
        records.Submission(spec=_spec(some, max_running), points=tuple(some))
        for group in by_shape(points)
        for some in _chunks(group, limits)
    ]
    totals = resources.total([resources.resources_of(point.spec, profile) for point in points])
    return records.Plan(submissions=tuple(submissions), totals=totals)


def by_shape(points: Sequence[records.Point]) -> list[list[records.Point]]:
    """Return the points that differ in arguments alone together; shapes as they first come."""
    groups: dict[str, list[records.Point]] = {}
    for point in points:
        groups.setdefault(point.shape, []).append(point)
    return [*groups.values()]


def _chunks(
    points: Sequence[records.Point], limits: records.Limits
) -> Iterator[Sequence[records.Point]]:
    # The largest index is MaxArraySize - 1 (man slurm.conf), and tasks count from 0.
    most = max(1, min(limits.max_array_size, limits.max_tasks or limits.max_array_size))
    shared = _shared([_by_flag(point.spec.args) for point in points])
    chunk: list[records.Point] = []
    size_bytes = 0
    for point in points:
        own_bytes = _size_bytes(point.spec, shared)
        if len(chunk) == most or (chunk and size_bytes + own_bytes > limits.max_arguments_bytes):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(point)
        size_bytes += own_bytes
    yield chunk


def _size_bytes(spec: jobs.JobSpec, shared: Container[str]) -> int:
    """Return about what a task's own arguments take in the script."""
    own = {key: value for key, value in spec.args.items() if arguments.flag(key) not in shared}
    words = arguments.shared(dataclasses.replace(spec, args=own))
    return _TASK_BYTES + sum(len(shlex.quote(word).encode()) + 1 for each in words for word in each)


def _shared(
    each: Sequence[Mapping[str, _Pair]],
) -> dict[str, _Pair]:
    """Return by flag the arguments that are the same in all."""
    return {
        flag: pair
        for flag, pair in each[0].items()
        if all(_alike(pair, other.get(flag)) for other in each)
    }


def _spec(points: Sequence[records.Point], max_running: int | None) -> jobs.JobSpec:
    """Return the job of these points: what they share in `[args]`, the rest by task."""
    spec = points[0].spec
    if len(points) == 1:
        return spec
    flags = [_by_flag(point.spec.args) for point in points]
    shared = _shared(flags)
    tasks = [
        {key: value for flag, (key, value) in each.items() if flag not in shared} for each in flags
    ]
    throttle = None if max_running is None or max_running >= len(points) else max_running
    if any(tasks):
        array = jobs.Array(tasks=tuple(tasks), max_running=throttle)
    else:
        array = jobs.Array(size=len(points), max_running=throttle)
    return dataclasses.replace(spec, args=dict(shared.values()), array=array)


def _by_flag(args: Mapping[str, jobs.ArgumentValue]) -> dict[str, _Pair]:
    return {arguments.flag(key): (key, value) for key, value in args.items()}


def _alike(one: _Pair, other: _Pair | None) -> bool:
    # 1, 1.0 and true are equal, and three different words of a command line.
    return other is not None and repr(one[1]) == repr(other[1])
