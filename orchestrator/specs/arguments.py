"""Arguments of a spec as words of a command line: of all tasks, and of each array task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orchestrator import jobs


def shared(spec: jobs.JobSpec) -> list[tuple[str, ...]]:
    """Return the words of each argument in `[args]` that no array task sets."""
    differing = _set_by_tasks(spec)
    return words({key: value for key, value in spec.args.items() if flag(key) not in differing})


def of_tasks(spec: jobs.JobSpec) -> list[list[str]] | None:
    """Return for each array task the words of the arguments in which tasks differ.

    An argument that a task does not set has its value from `[args]`. None: no tasks.
    """
    if spec.array.tasks is None:
        return None
    differing = _set_by_tasks(spec)
    defaults = {flag(key): value for key, value in spec.args.items() if flag(key) in differing}
    return [
        [
            word
            for pair in words(defaults | {flag(key): value for key, value in task.items()})
            for word in pair
        ]
        for task in spec.array.tasks
    ]


def of_task(spec: jobs.JobSpec, task: int | None) -> jobs.JobSpec:
    """Return the spec of a job that runs one array task alone; None: the spec is that of a job.

    The words of its command line are those of the task.
    """
    if task is None:
        return spec
    own = spec.array.tasks[task] if spec.array.tasks is not None else {}
    differing = _set_by_tasks(spec)
    keys = {flag(key): key for key in own}
    shared_ = {key: value for key, value in spec.args.items() if flag(key) not in differing}
    defaults = {flag(key): value for key, value in spec.args.items() if flag(key) in differing}
    values = defaults | {flag(key): value for key, value in own.items()}
    spelled = {keys.get(name, name.removeprefix("--")): value for name, value in values.items()}
    return dataclasses.replace(spec, args={**shared_, **spelled}, array=jobs.Array())


def _set_by_tasks(spec: jobs.JobSpec) -> set[str]:
    return {flag(key) for task in spec.array.tasks or () for key in task}


def flag(key: str) -> str:
    """Return the flag of an argument; batch_size and batch-size have the same."""
    return "--" + key.removeprefix("--").replace("_", "-")


def words(arguments: Mapping[str, jobs.ArgumentValue]) -> list[tuple[str, ...]]:
    """Return the words of each argument: true is a flag without value, false is omitted."""
    found: list[tuple[str, ...]] = []
    for key, value in arguments.items():
        if isinstance(value, bool):
            found += [(flag(key),)] if value else []
        else:
            items = value if isinstance(value, tuple) else (value,)
            found += [(flag(key), str(item)) for item in items]
    return found
