"""What an action on jobs did, as sentences: for the command line and for the web pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from orchestrator import errors, jobs, sweeps
from orchestrator.controller.actions import cancel as cancellation
from orchestrator.controller.actions import confirmed
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.rows import job_rows
from orchestrator.text import nouns

#: Stands for the names of the jobs in a message.
_NAMES = "{names}"
#: Action -> what is said of a job for which there was nothing to do.
ALREADY = {
    "hold": "was already held",
    "release": "is not held",
    "requeue": "is already pending",
}
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What an action did and what failed, as sentences."""

    #: one for each job that is as it was to be, or for tasks of an array with the same result
    lines: Sequence[str] = ()
    problems: Sequence[str] = ()
    #: Slurm refused, or does not show the change; otherwise the jobs do not allow it
    is_of_slurm: bool = False

    def raise_problems(self) -> None:
        """Raise SlurmError or ConflictError with all problems, if there are some."""
        if self.problems:
            kind = errors.SlurmError if self.is_of_slurm else errors.ConflictError
            raise kind("\n".join(self.problems))


def of_cancellation(outcomes: Sequence[cancellation.Cancelled]) -> Report:
    """Report on a cancellation."""
    shown = [(outcome.job, _result(outcome)) for outcome in outcomes if not outcome.why]
    lines = [f"{naming.names_of(tasks)} {result}" for tasks, result in grouped(shown)]
    problems = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    pending = [outcome.job for outcome in outcomes if not outcome.job.ended and not outcome.why]
    if pending:
        problems.append(_not_confirmed(naming.names_of(pending), _scheduler(*pending)))
    return Report(lines=lines, problems=problems, is_of_slurm=bool(pending))


def _result(outcome: cancellation.Cancelled) -> str:
    result = f"{'had already ended:' if outcome.already else 'is'} {outcome.job.state}"
    if outcome.followed_by is not None:
        return f"{result}; it is continued by {naming.name_of(outcome.followed_by)}"
    return f"{result}; its retry is cancelled" if outcome.withdrawn else result


def of_changes(outcomes: Sequence[confirmed.Outcome], *, already: str) -> Report:
    """Report on hold, release or requeue; `already`: one of ALREADY."""
    lines: list[str] = []
    problems: list[str] = []
    results = [(outcome.job, (outcome.end, _message(outcome, already))) for outcome in outcomes]
    for tasks, (end, message) in grouped(results):
        # An array that was never submitted is named by its first row.
        is_impossible = end in (confirmed.End.IMPOSSIBLE, confirmed.End.TOO_LATE)
        named = tasks[:1] if is_impossible and tasks[0].job_id is None else tasks
        is_good = end in (confirmed.End.DONE, confirmed.End.ALREADY)
        (lines if is_good else problems).append(message.replace(_NAMES, naming.names_of(named)))
    slurms = (confirmed.End.REFUSED, confirmed.End.UNSEEN)
    is_of_slurm = any(outcome.end in slurms for outcome in outcomes)
    return Report(lines=lines, problems=problems, is_of_slurm=is_of_slurm)


def _message(outcome: confirmed.Outcome, already: str) -> str:
    """Return the message about a job, with _NAMES in place of its name."""
    job = outcome.job
    why = outcome.why.replace(naming.name_of(job), _NAMES)
    match outcome.end:
        case confirmed.End.DONE:
            return f"{_NAMES} is {state_of(job)}"
        case confirmed.End.ALREADY:
            return f"{_NAMES} {already}: {state_of(job)}"
        case confirmed.End.REFUSED:
            return f"{_scheduler(job)} refused the request for {_NAMES}: {why}"
        case confirmed.End.UNSEEN:
            return _not_confirmed(_NAMES, _scheduler(job), state_of(job))
    return why


def _not_confirmed(names: str, scheduler: str, state: str = "") -> str:
    shown = f"{names} {state}".rstrip()
    return (
        f"{scheduler} accepted the request, but still shows {shown}; check with "
        f"`orchestrator status {names}`"
    )


def _scheduler(*selected: jobs.Job) -> str:
    name = contexts.scheduler_name(selected)
    return f"{name[0].upper()}{name[1:]}"


def raise_unless_completed(last: Sequence[jobs.Job], *, is_explained: bool = False) -> None:
    """Raise JobFailedError unless all jobs are COMPLETED; is_explained: the message is short."""
    failed = [job for job in last if job.state is not jobs.JobState.COMPLETED]
    if not failed:
        return
    if len(last) == 1:
        job, name = last[0], naming.name_of(last[0])
        code = job_rows.exit_text(job.exit_code, job.exit_signal)
        advice = "" if is_explained else f"; see `orchestrator explain {name}`"
        details = f", exit code {code}{advice}" if code else ""
        details = details or f": {job.reason}"
        raise errors.JobFailedError(f"job {name} ended {job.state}{details}")
    groups = grouped((job, str(job.state)) for job in failed)
    states = ", ".join(f"{naming.names_of(tasks)} {state}" for tasks, state in groups)
    raise errors.JobFailedError(f"{len(failed)} of {len(last)} jobs did not complete: {states}")


def raise_unless_points_completed(last: Sequence[jobs.Job], sweep_row: int) -> None:
    """Raise JobFailedError unless all points of a sweep are COMPLETED."""
    if failed := sum(job.state is not jobs.JobState.COMPLETED for job in last):
        raise errors.JobFailedError(
            f"{failed} of {len(last)} points did not complete; "
            f"see `orchestrator sweep status @{sweep_row} --points`"
        )


def of_cancelled_sweep(
    sweep: sweeps.StoredSweep, cancelled: Sequence[jobs.Job], unsubmitted: int
) -> str:
    """Return what was done; cancelled: the jobs that were live, as they are now."""
    # Some may end by themselves before scancel reaches them.
    stopped = (jobs.JobState.CANCELLED, jobs.JobState.NOT_SUBMITTED)
    ended = sum(job.state not in stopped for job in cancelled)
    text = f"Cancelled sweep {sweep.name} (@{sweep.row}): "
    text += nouns.count(len(cancelled) - ended, "point")
    text += f"; {unsubmitted} were never submitted" if unsubmitted else ""
    return text + (f"; {ended} had already ended" if ended else "")


def not_ended(last: Sequence[jobs.Job], timeout_seconds: float) -> errors.NotEndedError | None:
    """Return the error that a wait ended too early; None: all jobs have ended."""
    live = [job for job in last if not job.ended]
    if not live:
        return None
    return errors.NotEndedError(
        f"{len(live)} of {len(last)} jobs have not ended after {timeout_seconds:g} s"
    )


def state_of(job: jobs.Job, nodes: str = "") -> str:
    """Return `PENDING (JobHeldUser)`."""
    reason = job_rows.reason_of(job)
    return f"{job.state}{nodes} ({reason})" if reason else f"{job.state}{nodes}"


def grouped(results: Iterable[tuple[jobs.Job, Result]]) -> Iterator[tuple[list[jobs.Job], Result]]:
    """Yield the jobs of one submission that have the same result, with the result."""
    groups: dict[tuple[str, Result], list[jobs.Job]] = {}
    for job, result in results:
        groups.setdefault((job.token, result), []).append(job)
    for (_, result), tasks in groups.items():
        yield tasks, result
