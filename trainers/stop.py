"""Stop requests, the request to be requeued, and the fence between attempts of a job.

Ranks notice a signal or the stop file at different times, and a rank that leaves during a
collective would hang the others. A request is therefore only recorded, and the ranks agree between
two steps, about once a second, through a value in host memory (gloo) without synchronizing with the
device. They then save a checkpoint and stop.
"""

import contextlib
import dataclasses
import enum
import gc
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from trainers import distributed, errors

POLL_SECONDS = 1.0
# Largest margin as a share of the time limit: 90 s is too much for a job of one minute.
MARGIN_SHARE = 0.1


class Reason(enum.IntEnum):
    """Why a run stops before its end; if ranks differ, the highest value counts."""

    STOP_FILE = 1
    TIME_LIMIT = 2
    SIGNAL = 3
    INTERRUPT = 4


REASONS = {
    Reason.STOP_FILE: "the stop file exists",
    Reason.TIME_LIMIT: "the time limit is near",
    Reason.SIGNAL: "a signal was received",
    Reason.INTERRUPT: "it was interrupted",
}
STDERR = 2
INTERRUPTED = b"trainers.train: stops after this step; a second Ctrl-C ends it at once.\n"


class Stopper:
    """Decides between steps whether to stop."""

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
        self._signalled = 0
        self._interval = 1
        self._last_step = 0
        self._last_time = time.perf_counter()

    @contextlib.contextmanager
    def signals(self, *, is_announced: bool = False) -> Iterator[None]:
        """Record SIGTERM, SIGUSR1 and SIGINT while the body runs; a second SIGINT ends at once."""

        def note(number: int, frame: object) -> None:
            if number != signal.SIGINT:
                self._signalled = max(self._signalled, Reason.SIGNAL)
                return
            self._signalled = Reason.INTERRUPT
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if is_announced:
                with contextlib.suppress(OSError):
                    # print may be what the signal interrupted.
                    os.write(STDERR, INTERRUPTED)

        numbers = [signal.SIGTERM, signal.SIGUSR1]
        # A shell lets its jobs in the background ignore it.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            numbers.append(signal.SIGINT)
        before = [signal.signal(number, note) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def begin(self, step: int) -> None:
        """Count steps from this one; all ranks must call it."""
        self._last_step = step
        self._last_time = time.perf_counter()

    def agree(self, step: int, *, wants_window: bool = False) -> tuple[Reason | None, bool]:
        """Return why all ranks stop after this step, or None, and whether a window ends here.

        A window of time ends when any rank wants it. All ranks must call it after each step; only
        about once a second they communicate.
        """
        done = step - self._last_step
        if done < self._interval:
            return None, False
        now = time.perf_counter()
        # The shortest interval counts. It at most doubles, because the first steps are slow.
        fitting = self._poll_seconds * done / max(now - self._last_time, 1e-9)
        interval = int(max(1, min(fitting, 2 * self._interval)))
        requests = torch.tensor([self._request(), -interval, wants_window], dtype=torch.int64)
        reason, shortest, ends_window = distributed.all_reduce(requests, "max").tolist()
        self._interval = -shortest
        self._last_step, self._last_time = step, now
        return Reason(reason) if reason else None, bool(ends_window)

    def _request(self) -> int:
        if self._signalled:
            return self._signalled
        if self._deadline is not None and self._clock() >= self._deadline:
            return Reason.TIME_LIMIT
        if self._stop_file is not None and os.path.exists(self._stop_file):
            return Reason.STOP_FILE
        return 0


def read_stopper(environ: Mapping[str, str], *, margin_seconds: float) -> Stopper:
    """Read the stop file and the time limit from the environment of the job."""
    stop_file = environ.get("ORCHESTRATOR_STOP_FILE")
    return Stopper(
        stop_file=pathlib.Path(stop_file) if stop_file else None,
        deadline=deadline(environ, margin_seconds=margin_seconds),
    )


def deadline(environ: Mapping[str, str], *, margin_seconds: float) -> float | None:
    """Return when to stop because of the time limit, in seconds since the epoch.

    Returns None if SLURM_JOB_START_TIME and _END_TIME are unset (before Slurm 23.02).
    """
    begun, end = environ.get("SLURM_JOB_START_TIME", ""), environ.get("SLURM_JOB_END_TIME", "")
    if not (begun.isdecimal() and end.isdecimal()) or int(end) <= int(begun):
        return None
    return int(end) - min(margin_seconds, MARGIN_SHARE * (int(end) - int(begun)))


def end_attempt(
    reason: Reason,
    environ: Mapping[str, str],
    step: int,
    num_steps: int,
    *,
    is_saved: bool,
    is_writer: bool,
) -> None:
    """Request a requeue from the job script after `num_steps` steps of this attempt.

    Only the writer, rank 0, creates the requeue file. Raises StoppedError if nothing will start the
    run again: outside a job script, without a checkpoint, or if this attempt completed no step, as
    the next attempt would complete none either.
    """
    name = environ.get("ORCHESTRATOR_REQUEUE_FILE")
    if not name or not is_saved:
        raise errors.StoppedError(exit_code=130 if reason is Reason.INTERRUPT else 143)
    if num_steps == 0:
        raise errors.StoppedError(
            f"stopped at step {step}, the first step of this attempt: not requeued, because the"
            " next attempt would not get further. Increase the time limit."
        )
    if is_writer:
        draft = pathlib.Path(f"{name}.draft")
        draft.write_text(f"saved at step {step}\n")
        os.replace(draft, name)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage only where gc.collect is called: otherwise ranks pause at different times.

    Only objects that are created in the body are examined; PyTorch's own take 0.2 s.
    """
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fence:
    """Stops an older attempt, which a node that Slurm has lost may run after the job is requeued.

    The job script of each attempt creates a link `attempt.TASK.N` in the run folder before it
    starts the trainer; an older attempt stops writing when it sees a newer link.
    """

    run_dir: pathlib.Path
    #: Array task; `0` for a job that is not an array.
    task: str
    #: Number of this attempt, counted from 0.
    attempt: int

    def check(self) -> None:
        """Raise SupersededError if a newer attempt has started: a link `attempt.TASK.N` exists."""
        prefix = f"attempt.{self.task}."
        numbers = [
            int(name.removeprefix(prefix))
            for name in os.listdir(self.run_dir)
            if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
        ]
        newest = max(numbers, default=0)
        if newest > self.attempt:
            raise errors.SupersededError(
                f"attempt {newest} of this job has started, so attempt {self.attempt} ends without"
                " writing any more."
            )


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
