"""The fence between attempts of a job: an older attempt stops writing when a newer one starts.

A node that Slurm has lost may continue to run an attempt after Slurm has requeued the job. The job
script of each attempt creates a link `attempt.TASK.N` in the run folder before it starts the
trainer.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping

from trainers import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fence:
    """The attempt of this process, and the folder with the links of all attempts."""

    #: Folder of the attempt links.
    run_dir: pathlib.Path
    #: Array task; `0` for a job that is not an array.
    task: str
    #: Number of this attempt, counted from 0.
    attempt: int

    def check(self) -> None:
        """Raise SupersededError if a newer attempt has started."""
        newest = newest_attempt(self.run_dir, self.task)
        if newest is not None and newest > self.attempt:
            raise errors.SupersededError(
                f"attempt {newest} of this job has started, so attempt {self.attempt} ends without"
                " writing any more."
            )


def newest_attempt(run_dir: pathlib.Path, task: str) -> int | None:
    """Return the highest N of the links `attempt.TASK.N`, or None if there are none."""
    prefix = f"attempt.{task}."
    numbers = [
        int(name.removeprefix(prefix))
        for name in os.listdir(run_dir)
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    ]
    return max(numbers, default=None)


def read_fence(environ: Mapping[str, str], run_dir: pathlib.Path) -> Fence | None:
    """Read the fence from the variables of the job script; None outside a job script.

    The links are in ORCHESTRATOR_RUN_DIR, even if the trainer's `run_dir` is another folder.
    """
    attempt = environ.get("ORCHESTRATOR_ATTEMPT")
    if attempt is None:
        return None
    if not attempt.isdecimal():
        raise errors.UsageError(f"ORCHESTRATOR_ATTEMPT={attempt!r} is not a number.")
    return Fence(
        run_dir=pathlib.Path(environ.get("ORCHESTRATOR_RUN_DIR") or run_dir),
        task=environ.get("ORCHESTRATOR_TASK") or "0",
        attempt=int(attempt),
    )
