"""A controller pass: everything that is done without a person, step by step and idempotent."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

from orchestrator import errors
from orchestrator.controller.graphs import graphs
from orchestrator.controller.metrics import ended_jobs
from orchestrator.controller.notices import delivery
from orchestrator.controller.recovery import recover_jobs
from orchestrator.controller.resubmission import deferred_jobs
from orchestrator.controller.schedules import triggers
from orchestrator.controller.session import contexts
from orchestrator.text import nouns, times


class Stopped(Exception):
    """The controller is asked to stop: started work is finished, and nothing more is started."""


class Step(NamedTuple):
    name: str
    #: returns sentences about what it did
    run: Callable[[contexts.Context], list[str]]
    #: decides by the clock: skipped while the clock is in doubt
    by_clock: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    step: str
    done: tuple[str, ...] = ()
    error: Exception | None = None
    seconds: float

    @property
    def exit_code(self) -> int:
        if isinstance(self.error, errors.OrchestratorError):
            return self.error.exit_code
        return 0 if self.error is None else 1


def _refresh(context: contexts.Context, floor_seconds: float | None) -> list[str]:
    fresh = deferred_jobs.refresh_and_send(context, floor_seconds=floor_seconds)
    if fresh.failing_since is not None:
        since = times.local(fresh.failing_since)
        raise errors.SlurmError(f"Slurm has not answered since {since}: {fresh.last_error}")
    if not fresh.changed:
        return []
    changed = f"{nouns.count(fresh.changed, 'job')} changed"
    return [f"{changed}, {fresh.ended} ended" if fresh.ended else changed]


def _trackers(context: contexts.Context) -> list[str]:
    if not context.configuration.tracking.sync:
        return []
    from orchestrator.controller.trackers import sync

    return sync.step(context)


def steps(floor_seconds: float | None) -> tuple[Step, ...]:
    """Return the steps in their order: each uses what the ones before it stored.

    floor_seconds: Slurm is not queried if its last reply is younger; None: the profile's.
    """
    return (
        Step("refresh", functools.partial(_refresh, floor_seconds=floor_seconds), by_clock=False),
        Step("logs", ended_jobs.step, by_clock=False),
        Step("recover", recover_jobs.step),
        Step("trackers", _trackers),
        Step("graphs", graphs.step),
        Step("schedules", triggers.step),
        Step("notices", delivery.step),
    )


def run(context: contexts.Context, *, floor_seconds: float | None = None) -> Iterator[Outcome]:
    """Make one pass, and yield the result of each step.

    A failing step does not prevent the next ones. Raises FencedError if another controller took
    over, and what `context.guard.check` raises.
    """
    for step in steps(floor_seconds):
        if not (step.by_clock and context.clock.doubt):
            context.guard.check()
            yield _run_step(context, step)


def next_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    """Return when the next pass has work that the last one, started at `after`, did not have."""
    with context.store.reading() as work:
        times = [work.jobs.next_resend_at(after), work.recovery.next_due_at(after)]
    times.append(triggers.next_at(context, after))
    return min((at for at in times if at is not None and at > after), default=None)


def _run_step(context: contexts.Context, step: Step) -> Outcome:
    start = time.monotonic()
    done: list[str] = []
    error: Exception | None = None
    try:
        done = step.run(context)
    except (Stopped, errors.FencedError):
        raise
    except Exception as exc:
        if not isinstance(exc, errors.OrchestratorError):
            # A bug in one step is reported like a failure.
            frame = traceback.extract_tb(exc.__traceback__)[-1]
            exc.add_note(f"{frame.filename}:{frame.lineno}")
        error = exc
    return Outcome(step=step.name, done=tuple(done), error=error, seconds=time.monotonic() - start)
