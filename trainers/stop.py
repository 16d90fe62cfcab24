"""Stop requests, the request to be requeued, and the check for newer attempts of a job.

Ranks notice a signal or the stop file at different times, and a rank that leaves during a
collective would hang the others. A request is therefore only recorded, and the ranks agree between
two steps, about once a second, through a value in host memory (gloo).
"""

import contextlib
import enum
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from trainers import distributed, errors

# Largest margin as a share of the time limit: 90 s is too much for a job of one minute.
MARGIN_SHARE = 0.1


class Reason(enum.Enum):
    """Why a run stops before its end; if ranks differ, the last of these counts."""

    STOP_FILE = "the stop file exists"
    TIME_LIMIT = "the time limit is near"
    SIGNAL = "a signal was received"
    INTERRUPT = "it was interrupted"


# By number, for a reduction over the ranks.
REASONS = (None, *Reason)
INTERRUPTED = b"trainers.train: stops after this step; a second Ctrl-C ends it at once.\n"


class Stopper:
    """Decides between steps whether to stop."""

    def __init__(
        self,
        *,
        stop_file: pathlib.Path | None = None,
        deadline: float | None = None,
        poll_seconds: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        #: When to stop because of the time limit, in seconds since the epoch.
        self.deadline = deadline
        self._stop_file, self._poll_seconds, self._clock = stop_file, poll_seconds, clock
        self._signalled: Reason | None = None
        self._interval = 1
        self.begin(0)

    @contextlib.contextmanager
    def signals(self, *, is_announced: bool = False) -> Iterator[None]:
        """Record SIGTERM, SIGUSR1 and SIGINT while the body runs; a second SIGINT ends at once."""

        def note(number: int, frame: object) -> None:
            if number != signal.SIGINT:
                self._signalled = self._signalled or Reason.SIGNAL
                return
            self._signalled = Reason.INTERRUPT
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if is_announced:
                with contextlib.suppress(OSError):
                    # print may be what the signal interrupted.
                    os.write(2, INTERRUPTED)

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
        self._last_step, self._last_time = step, time.perf_counter()

    def agree(self, step: int, *, wants_window: bool = False) -> tuple[Reason | None, bool]:
        """Return why all ranks stop after this step, or None, and whether a window ends here."""
        done = step - self._last_step
        if done < self._interval:
            return None, False
        seconds = max(time.perf_counter() - self._last_time, 1e-9)
        # The shortest interval counts. It at most doubles, because the first steps are slow.
        interval = int(max(1, min(self._poll_seconds * done / seconds, 2 * self._interval)))
        own = REASONS.index(self._request())
        requests = torch.tensor([own, -interval, wants_window], dtype=torch.int64)
        number, shortest, ends_window = distributed.all_reduce(requests, "max").tolist()
        self._interval = -shortest
        self.begin(step)
        return REASONS[number], bool(ends_window)

    def _request(self) -> Reason | None:
        if self._signalled is not None:
            return self._signalled
        if self.deadline is not None and self._clock() >= self.deadline:
            return Reason.TIME_LIMIT
        if self._stop_file is not None and self._stop_file.exists():
            return Reason.STOP_FILE
        return None


def read_stopper(environ: Mapping[str, str], *, margin_seconds: float) -> Stopper:
    """Return the stopper of a job: its stop file, and its time limit less the margin."""
    path = environ.get("ORCHESTRATOR_STOP_FILE")
    # Unset before Slurm 23.02.
    begun, end = environ.get("SLURM_JOB_START_TIME", ""), environ.get("SLURM_JOB_END_TIME", "")
    deadline = None
    if begun.isdecimal() and end.isdecimal():
        deadline = int(end) - min(margin_seconds, MARGIN_SHARE * (int(end) - int(begun)))
    return Stopper(stop_file=pathlib.Path(path) if path else None, deadline=deadline)


def end_attempt(
    reason: Reason, requeue_file: str | None, step: int, num_steps: int, rank: int
) -> None:
    """Request a requeue after `num_steps` steps; raise StoppedError if there will be none."""
    if not requeue_file:
        raise errors.StoppedError(exit_code=130 if reason is Reason.INTERRUPT else 143)
    if num_steps == 0:
        raise errors.StoppedError(
            f"stopped at step {step}, the first step of this attempt: not requeued, because the"
            " next attempt would not get further. Increase the time limit."
        )
    if rank == 0:
        draft = pathlib.Path(f"{requeue_file}.draft")
        draft.write_text(f"saved at step {step}\n")
        os.replace(draft, requeue_file)


def check_attempt(environ: Mapping[str, str], run_dir: pathlib.Path) -> None:
    """Raise SupersededError if a newer attempt of this job has started.

    A node that Slurm has lost may run an older attempt after the job is requeued. The job script of
    each attempt creates a link `attempt.TASK.N` in the run folder; outside of a job there is none.
    """
    if "ORCHESTRATOR_ATTEMPT" not in environ:
        return
    # The links are there even if the trainer's `run_dir` is another folder.
    folder = pathlib.Path(environ.get("ORCHESTRATOR_RUN_DIR") or run_dir)
    links = folder.glob(f"attempt.{environ.get('ORCHESTRATOR_TASK') or '0'}.*")
    numbers = [link.name.split(".", 2)[2] for link in links]
    newest = max((int(number) for number in numbers if number.isdecimal()), default=0)
    if newest > (own := int(environ["ORCHESTRATOR_ATTEMPT"])):
        raise errors.SupersededError(
            f"attempt {newest} of this job has started: attempt {own} writes no more."
        )
