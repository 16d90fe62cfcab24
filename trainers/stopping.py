"""Being asked to stop: every rank stops after the same step, its work saved.

A signal or the stop file reaches ranks at different moments, and a rank that leaves while others
are in a collective would hang them. So a request is only noted, and the ranks agree between two
steps, about once a second. What they agree by is a number in the host's memory (gloo): the device
is not waited for.
"""

import contextlib
import enum
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from trainers import errors, ranks

POLL_SECONDS = 1.0
# A margin of 90 s would leave nothing of a job of one minute.
MARGIN_SHARE = 0.1


class Reason(enum.IntEnum):
    """Why a run stops before its end; where ranks differ, the highest counts."""

    #: The job script made its stop file.
    STOP_FILE = 1
    #: The job's time is nearly up.
    TIME_LIMIT = 2
    #: SIGTERM or SIGUSR1 reached a rank.
    SIGNAL = 3


class Stopper:
    """Tells between steps whether to stop."""

    def __init__(
        self,
        *,
        stop_file: pathlib.Path | None = None,
        deadline: float | None = None,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stop_file = stop_file
        self._deadline = deadline
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._signalled = False
        self._interval = 1
        self._last_step = 0
        self._last_time = time.perf_counter()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Note SIGTERM and SIGUSR1 while the body runs, instead of dying of them."""

        def note(number: int, frame: object) -> None:
            self._signalled = True

        numbers = (signal.SIGTERM, signal.SIGUSR1)
        before = [signal.signal(number, note) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def begin(self, step: int) -> None:
        """Count from this step; all ranks must call it."""
        self._last_step = step
        self._last_time = time.perf_counter()

    def agreed(self, step: int) -> Reason | None:
        """Return why all ranks stop after this step, None to go on; all ranks must call it."""
        done = step - self._last_step
        if done < self._interval:
            return None
        now = time.perf_counter()
        # The slowest rank's wish counts; doubling at the most, because first steps are slow.
        fitting = self._poll_seconds * done / max(now - self._last_time, 1e-9)
        interval = int(max(1, min(fitting, 2 * self._interval)))
        asked = torch.tensor([self._asked(), -interval], dtype=torch.int64)
        reason, shortest = ranks.max_over_ranks(asked).tolist()
        self._interval = -shortest
        self._last_step, self._last_time = step, now
        return Reason(reason) if reason else None

    def _asked(self) -> int:
        if self._signalled:
            return Reason.SIGNAL
        if self._deadline is not None and self._clock() >= self._deadline:
            return Reason.TIME_LIMIT
        if self._stop_file is not None and os.path.exists(self._stop_file):
            return Reason.STOP_FILE
        return 0


def read_stopper(environ: Mapping[str, str], *, margin_seconds: float) -> Stopper:
    """Read from the job's environment who may ask this run to stop."""
    stop_file = environ.get("ORCHESTRATOR_STOP_FILE")
    return Stopper(
        stop_file=pathlib.Path(stop_file) if stop_file else None,
        deadline=deadline(environ, margin_seconds=margin_seconds),
    )


def deadline(environ: Mapping[str, str], *, margin_seconds: float) -> float | None:
    """Return when to stop because of the job's time limit, in seconds of the epoch.

    SLURM_JOB_START_TIME and _END_TIME are set since Slurm 23.02; without them None.
    """
    begun, end = environ.get("SLURM_JOB_START_TIME", ""), environ.get("SLURM_JOB_END_TIME", "")
    if not (begun.isdecimal() and end.isdecimal()) or int(end) <= int(begun):
        return None
    return int(end) - min(margin_seconds, MARGIN_SHARE * (int(end) - int(begun)))


def request_requeue(
    environ: Mapping[str, str], *, step: int, first_step: int, is_writer: bool
) -> bool:
    """Ask the job script to requeue this job, when everything is saved; tell whether it is asked.

    Only the writer, rank 0, asks. Raises StoppedError where this attempt made no step: the next
    would make none either.
    """
    name = environ.get("ORCHESTRATOR_REQUEUE_FILE")
    if not name:
        return False
    if step == first_step:
        raise errors.StoppedError(
            f"stopped at step {step}, where this attempt began: not requeued, because the next"
            " attempt would get no further. Give the job more time."
        )
    if is_writer:
        draft = pathlib.Path(f"{name}.draft")
        draft.write_text(f"saved at step {step}\n")
        os.replace(draft, name)
    return True
