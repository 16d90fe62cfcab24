"""The arguments of a spec as words of a command line: what all tasks share, and each task's own."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator import jobs


def shared(spec: jobs.JobSpec) -> list[tuple[str, ...]]:
    """Return the words of each argument in `[args]` that no array task names."""
    differing = _differing(spec)
    return _words({key: value for key, value in spec.args.items() if flag(key) not in differing})


def of_tasks(spec: jobs.JobSpec) -> list[list[str]] | None:
    """Return for each array task the words of the arguments in which tasks differ; None: no tasks.

    What a task does not say is as in `[args]`.
    """
    if spec.array.tasks is None:
        return None
    differing = _differing(spec)
    common = {flag(key): value for key, value in spec.args.items() if flag(key) in differing}
    of_task = (
        {**common, **{flag(key): value for key, value in task.items()}} for task in spec.array.tasks
    )
    return [[word for words in _words(each) for word in words] for each in of_task]


def _differing(spec: jobs.JobSpec) -> set[str]:
    return {flag(key) for task in spec.array.tasks or () for key in task}


def flag(key: str) -> str:
    """Return the flag of an argument: batch_size and batch-size are one."""
    return "--" + key.removeprefix("--").replace("_", "-")


def _words(arguments: Mapping[str, jobs.ArgumentValue]) -> list[tuple[str, ...]]:
    """Return the words of each argument: true is a bare flag, false is left out."""
    words: list[tuple[str, ...]] = []
    for key, value in arguments.items():
        word = flag(key)
        if isinstance(value, bool):
            words += [(word,)] if value else []
        else:
            words += [(word, str(v)) for v in (value if isinstance(value, tuple) else (value,))]
    return words
