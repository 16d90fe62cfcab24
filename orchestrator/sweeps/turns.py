"""max_running over several submissions: which of those sent before a new one has to wait for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sent:
    """A submission that has not ended."""

    #: Slurm's, of an array the whole one's
    job_id: str
    #: its tasks that have not ended
    tasks: int


def after(sent: Sequence[Sent], tasks: int, most: int) -> tuple[str, ...]:
    """Return the jobs whose end a new submission waits for, so that at most `most` tasks run.

    `sent` is in the order of sending, and each of it waits for others by the same rule. Those left
    out here may run beside the new one; of any that run together the newest has all others beside
    it, so together they are no more than `most`. A submission alone keeps `most` by its throttle.
    """
    beside = _beside(sent, tasks, most)
    if beside == len(sent):
        return ()
    # The newest of the earlier ones waits itself for all but those that may run beside it.
    earlier = sent[: len(sent) - beside]
    window = _beside(earlier[:-1], earlier[-1].tasks, most)
    return tuple(one.job_id for one in earlier[len(earlier) - 1 - window :])


def _beside(sent: Sequence[Sent], tasks: int, most: int) -> int:
    """Return how many of the newest may run beside a submission of so many tasks."""
    room, count = most - min(tasks, most), 0
    for one in reversed(sent):
        room -= min(one.tasks, most)
        if room < 0:
            break
        count += 1
    return count
