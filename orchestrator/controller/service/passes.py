"""tick: one idempotent pass over all that is to be done without a person, step by step."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import time
import traceback
from collections.abc import Callable, Iterator

from orchestrator import errors
from orchestrator.controller.session import contexts


class Stopped(Exception):
    """The controller is to end; what was begun is done, and nothing more is begun."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One part of a pass."""

    name: str
    #: plain sentences of what it did; each loads its modules when it is called
    run: Callable[[contexts.Context], list[str]]
    #: it decides by the clock: left out while that is in doubt
    by_clock: bool = True
    #: when, later than a moment, it has something to do; None: at no time that is known
    next_at: Callable[[contexts.Context, datetime.datetime], datetime.datetime | None] = (
        lambda context, after: None
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one step did."""

    step: str
    done: tuple[str, ...] = ()
    #: why it failed; none: it went well
    error: Exception | None = None
    seconds: float

    @property
    def exit_code(self) -> int:
        """Return what a command ends with whose step came out so."""
        if isinstance(self.error, errors.OrchestratorError):
            return self.error.exit_code
        return 0 if self.error is None else 1


def _refresh(context: contexts.Context, floor_seconds: float | None) -> list[str]:
    from orchestrator.controller.resubmission import resend

    fresh = resend.refresh_and_send(context, floor_seconds=floor_seconds)
    if fresh.failing_since is not None:
        since = fresh.failing_since.astimezone()
        raise errors.SlurmError(
            f"Slurm does not answer since {since:%Y-%m-%d %H:%M:%S}: {fresh.error}"
        )
    if not fresh.changed:
        return []
    changed = "1 job changed" if fresh.changed == 1 else f"{fresh.changed} jobs changed"
    return [f"{changed}, {fresh.ended} ended" if fresh.ended else changed]


def _resend_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    with context.store.reading() as work:
        return work.jobs.next_resend_at(after)


def _logs(context: contexts.Context) -> list[str]:
    from orchestrator.controller.metrics import ended_jobs

    return ended_jobs.step(context)


def _graphs(context: contexts.Context) -> list[str]:
    from orchestrator.controller.graphs import graphs

    return graphs.step(context)


def _notices(context: contexts.Context) -> list[str]:
    from orchestrator.controller.notices import send

    return send.step(context)


def _schedules(context: contexts.Context) -> list[str]:
    from orchestrator.controller.schedules import triggers

    return triggers.step(context)


def _planned_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    from orchestrator.controller.schedules import triggers

    return triggers.next_at(context, after)


def _recover(context: contexts.Context) -> list[str]:
    with context.store.reading() as work:
        if not work.recovery.has_work(context.clock.now()):
            return []
    # Brings submitit, a fifth of a second: only where there is something to do.
    from orchestrator.controller.recovery import retry

    return retry.step(context)


def _recover_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    with context.store.reading() as work:
        return work.recovery.next_due_at(after)


def steps(floor_seconds: float | None) -> tuple[Step, ...]:
    """Return the steps in their order: each builds on what those before it have stored.

    Slurm is not asked where its last answer is younger than the floor (None: the profile's).
    """
    refresh = functools.partial(_refresh, floor_seconds=floor_seconds)
    return (
        Step(name="refresh", run=refresh, by_clock=False, next_at=_resend_at),
        Step(name="logs", run=_logs, by_clock=False),
        Step(name="recover", run=_recover, next_at=_recover_at),
        Step(name="graphs", run=_graphs),
        Step(name="schedules", run=_schedules, next_at=_planned_at),
        Step(name="notices", run=_notices),
    )


def tick(context: contexts.Context, *, floor_seconds: float | None = None) -> Iterator[Outcome]:
    """Do one pass, and yield what each step did.

    A step that fails keeps none of the others from running. Raises FencedError where another
    controller acts, and what `context.guard.check` raises.
    """
    for step in steps(floor_seconds):
        if step.by_clock and context.clock.doubt:
            continue
        context.guard.check()
        yield _run(context, step)


def next_at(context: contexts.Context, after: datetime.datetime) -> datetime.datetime | None:
    """Return when the next pass has something to do that the last, begun at `after`, had not."""
    found = [step.next_at(context, after) for step in steps(None)]
    return min((at for at in found if at is not None and at > after), default=None)


def _run(context: contexts.Context, step: Step) -> Outcome:
    began = time.monotonic()
    done: list[str] = []
    error: Exception | None = None
    try:
        done = step.run(context)
    except (Stopped, errors.FencedError):
        raise
    except errors.OrchestratorError as exc:
        error = exc
    except Exception as exc:
        # A mistake of ours in one step is told like a failure, and the others still run.
        where = traceback.extract_tb(exc.__traceback__)[-1]
        exc.add_note(f"{where.filename}:{where.lineno}")
        error = exc
    return Outcome(step=step.name, done=tuple(done), error=error, seconds=time.monotonic() - began)
