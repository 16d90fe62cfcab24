"""max_running over several submissions: the earlier ones that a new submission depends on."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.sweeps import records


def after(live: Sequence[records.LiveSubmission], tasks: int, max_running: int) -> tuple[str, ...]:
    """Return the jobs after whose end a submission starts, so that `max_running` tasks run at most.

    `live` is in the order of sending, and each of it depends on earlier ones by the same rule. A
    submission may run beside those that are not returned. Of submissions that run together the
    newest may run beside all others, so they have `max_running` tasks at most. The throttle of an
    array limits its own tasks.
    """
    beside = _beside(live, tasks, max_running)
    if beside == len(live):
        return ()
    # The newest of the earlier ones itself depends on all but those that may run beside it.
    earlier = live[: len(live) - beside]
    window = _beside(earlier[:-1], earlier[-1].tasks, max_running)
    return tuple(submission.job_id for submission in earlier[len(earlier) - 1 - window :])


def _beside(live: Sequence[records.LiveSubmission], tasks: int, max_running: int) -> int:
    """Return how many of the newest submissions may run beside one with so many tasks."""
    room, count = max_running - min(tasks, max_running), 0
    for submission in reversed(live):
        room -= min(submission.tasks, max_running)
        if room < 0:
            break
        count += 1
    return count
