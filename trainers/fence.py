"""The fence between attempts of a job: an older one writes nothing once a newer one exists.

A node that Slurm has lost may go on running the attempt that Slurm has started again elsewhere.
The job script of each attempt makes a link `attempt.TASK.N` in the run folder before it starts a
trainer.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping

from trainers import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fence:
    """Which attempt this process belongs to, and where newer ones would show."""

    #: Folder of the attempt links.
    run_dir: pathlib.Path
    #: Array task, `0` for a job that is no array.
    task: str
    #: Number of this attempt, counted from 0.
    attempt: int

    def check(self) -> None:
        """Raise SupersededError when a newer attempt has begun."""
        newest = newest_attempt(self.run_dir, self.task)
        if newest is not None and newest > self.attempt:
            raise errors.SupersededError(
                f"attempt {newest} of this job has begun, so this one, attempt {self.attempt},"
                " ends without writing any more."
            )


def newest_attempt(run_dir: pathlib.Path, task: str) -> int | None:
    """Return the highest N of the links `attempt.TASK.N`, None where there is none."""
    prefix = f"attempt.{task}."
    numbers = [
        int(name.removeprefix(prefix))
        for name in os.listdir(run_dir)
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    ]
    return max(numbers, default=None)


def read_fence(environ: Mapping[str, str], run_dir: pathlib.Path) -> Fence | None:
    """Read the fence that the job script describes; None outside of such a script.

    The links lie in ORCHESTRATOR_RUN_DIR, even where the trainer's own `run_dir` is another folder.
    """
    attempt = environ.get("ORCHESTRATOR_ATTEMPT")
    if attempt is None:
        return None
    if not attempt.isdecimal():
        raise errors.UsageError(f"ORCHESTRATOR_ATTEMPT={attempt!r} is no number.")
    return Fence(
        run_dir=pathlib.Path(environ.get("ORCHESTRATOR_RUN_DIR") or run_dir),
        task=environ.get("ORCHESTRATOR_TASK") or "0",
        attempt=int(attempt),
    )
