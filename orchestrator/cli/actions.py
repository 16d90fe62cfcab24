"""orchestrator cancel, hold, release, requeue and wait."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, interrupts, options, output, session, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import job_rows
from orchestrator.controller.actions import cancel as cancellation
from orchestrator.controller.actions import changes, confirmed, wait
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming

#: Time after --timeout in which `wait` may end by itself.
_GRACE_SECONDS = 2.0

#: Of an array. The others fail for the same reasons, and each log takes time.
_MAX_EXPLAINED = 20

#: Stands for the names of the jobs in a message.
_NAMES = "{names}"
Result = TypeVar("Result")

timeout_option = option(
    "--timeout",
    "Wait at most this long until Slurm shows the change.",
    value_types.seconds(),
    metavar="SECONDS",
    default=confirmed.CONFIRM_SECONDS,
)


@commands.command("cancel", "orchestrator cancel 123", "orchestrator cancel 124_3 '125_[0-9]'")
def cancel(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel reports success even for jobs that it does not know, so the queue is checked afterwards.
    """
    outcomes = cancellation.cancel(context, selection.find(context), confirm_seconds=timeout)
    shown = [(outcome.job, _result(outcome)) for outcome in outcomes if not outcome.why]
    for tasks, result in _grouped(shown):
        click.echo(f"{naming.names_of(tasks)} {result}")
    _raise_unless_cancelled(outcomes)


def cancel_live(
    context: contexts.Context, live: Sequence[jobs.Job], timeout: float
) -> list[jobs.Job]:
    """Cancel live jobs and return them. Raises SlurmError or ConflictError if that fails."""
    outcomes = cancellation.cancel(context, live, confirm_seconds=timeout) if live else []
    _raise_unless_cancelled(outcomes)
    return [outcome.job for outcome in outcomes]


def _result(outcome: cancellation.Cancelled) -> str:
    result = f"{'had already ended:' if outcome.already else 'is'} {outcome.job.state}"
    if outcome.followed_by is not None:
        return f"{result}; it is continued by {naming.name_of(outcome.followed_by)}"
    return f"{result}; its retry is cancelled" if outcome.withdrawn else result


def _raise_unless_cancelled(outcomes: Sequence[cancellation.Cancelled]) -> None:
    problems = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    pending = [outcome.job for outcome in outcomes if not outcome.job.ended and not outcome.why]
    if pending:
        problems.append(_not_confirmed(naming.names_of(pending), _scheduler(*pending)))
    if problems:
        raise (errors.SlurmError if pending else errors.ConflictError)("\n".join(problems))


@commands.command("hold", "orchestrator hold 123 124")
def hold_jobs(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
) -> None:
    """Prevent pending jobs from starting.

    Waits until Slurm shows that they are held. Running jobs are not held: `requeue --hold` stops
    and holds them.
    """
    outcomes = changes.hold(context, selection.find(context), confirm_seconds=timeout)
    print_outcomes(outcomes, already="was already held")


@commands.command("release", "orchestrator release --name wrn-cifar100")
def release(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
) -> None:
    """Allow held jobs to start.

    Waits until Slurm shows that they are not held. This includes jobs that were requeued in held
    state (REQUEUE_HOLD, SPECIAL_EXIT).
    """
    outcomes = changes.release(context, selection.find(context), confirm_seconds=timeout)
    print_outcomes(outcomes, already="is not held")


@commands.command("requeue", "orchestrator requeue --hold 123")
def requeue_jobs(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
    hold: bool = option("--hold", "Hold the jobs; `release` lets them start."),
) -> None:
    """Requeue jobs under the same job ID.

    Waits until Slurm shows it. A running job is stopped, and its script starts again as the next
    attempt. A job that ended can be requeued while Slurm remembers it (MinJobAge, often 5 minutes);
    after that use `resubmit`.
    """
    outcomes = changes.requeue(context, selection.find(context), hold=hold, confirm_seconds=timeout)
    print_outcomes(outcomes, already="is already pending")


def print_outcomes(outcomes: Sequence[confirmed.Outcome], *, already: str) -> None:
    """Print one line for each job, or for tasks of an array with the same result.

    Raises SlurmError if Slurm refused or does not show the change, ConflictError for other
    problems.
    """
    problems: list[str] = []
    results = [(outcome.job, (outcome.end, _message(outcome, already))) for outcome in outcomes]
    for tasks, (end, message) in _grouped(results):
        # An array that was never submitted is named by its first row.
        is_impossible = end in (confirmed.End.IMPOSSIBLE, confirmed.End.TOO_LATE)
        named = tasks[:1] if is_impossible and tasks[0].job_id is None else tasks
        message = message.replace(_NAMES, naming.names_of(named))
        if end in (confirmed.End.DONE, confirmed.End.ALREADY):
            click.echo(message)
        else:
            problems.append(message)
    if problems:
        slurms = (confirmed.End.REFUSED, confirmed.End.UNSEEN)
        of_slurm = any(outcome.end in slurms for outcome in outcomes)
        raise (errors.SlurmError if of_slurm else errors.ConflictError)("\n".join(problems))


def _message(outcome: confirmed.Outcome, already: str) -> str:
    """Return the message about a job, with _NAMES in place of its name."""
    job = outcome.job
    why = outcome.why.replace(naming.name_of(job), _NAMES)
    match outcome.end:
        case confirmed.End.DONE:
            return f"{_NAMES} is {_state(job)}"
        case confirmed.End.ALREADY:
            return f"{_NAMES} {already}: {_state(job)}"
        case confirmed.End.REFUSED:
            return f"{_scheduler(job)} refused the request for {_NAMES}: {why}"
        case confirmed.End.UNSEEN:
            return _not_confirmed(_NAMES, _scheduler(job), _state(job))
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


def _state(job: jobs.Job, nodes: str = "") -> str:
    reason = job_rows.reason_of(job)
    return f"{job.state}{nodes} ({reason})" if reason else f"{job.state}{nodes}"


def _grouped(results: Iterable[tuple[jobs.Job, Result]]) -> Iterator[tuple[list[jobs.Job], Result]]:
    """Yield the jobs of one submission that have the same result, with the result."""
    groups: dict[tuple[str, Result], list[jobs.Job]] = {}
    for job, result in results:
        groups.setdefault((job.token, result), []).append(job)
    for (_, result), tasks in groups.items():
        yield tasks, result


@commands.command("wait", "orchestrator wait 123 124")
def wait_for_jobs(
    ctx: click.Context,
    selection: options.Selection = options.selection,
    timeout: float | None = option(
        "--timeout", "Wait at most this long.", value_types.seconds(), metavar="SECONDS"
    ),
    form: str | None = options.optional_form,
) -> None:
    """Wait until jobs have ended.

    Exit code 0 if all jobs are COMPLETED, 1 if one ended otherwise, 124 if --timeout passes first.

    However many processes wait, squeue runs once per interval. The command ends at most two seconds
    after --timeout, even if Slurm, the database or a file system hangs.
    """
    with _hard_limit(timeout):
        context = session.open_context(ctx)
        rows = [job.row for job in selection.find(context, with_ended=True)]
        last = wait_for_end(context, rows, timeout)
    if form is not None:
        job_rows.print_jobs(last, context.clock.now(), form)
    live = [job for job in last if not job.ended]
    if live:
        raise errors.NotEndedError(
            f"{len(live)} of {len(last)} jobs have not ended after {timeout:g} s"
        )
    raise_unless_completed(last)


def raise_unless_completed(last: Sequence[jobs.Job], *, is_explained: bool = False) -> None:
    """Raise OrchestratorError unless all jobs are COMPLETED."""
    failed = [job for job in last if job.state is not jobs.JobState.COMPLETED]
    if not failed:
        return
    if len(last) == 1:
        job, name = last[0], naming.name_of(last[0])
        code = job_rows.exit_text(job.exit_code, job.exit_signal)
        advice = "" if is_explained else f"; see `orchestrator explain {name}`"
        details = f", exit code {code}{advice}" if code else ""
        details = details or f": {job.reason}"
        raise errors.OrchestratorError(f"job {name} ended {job.state}{details}")
    groups = _grouped((job, str(job.state)) for job in failed)
    states = ", ".join(f"{naming.names_of(tasks)} {state}" for tasks, state in groups)
    raise errors.OrchestratorError(f"{len(failed)} of {len(last)} jobs did not complete: {states}")


def explain_failures(context: contexts.Context, last: Sequence[jobs.Job]) -> None:
    """Raise OrchestratorError unless all jobs are COMPLETED, after an explanation on stderr."""
    failed = [job for job in last if job.state is not jobs.JobState.COMPLETED]
    if failed:
        from orchestrator.cli import explain

        for line in explain.lines(context, failed[:_MAX_EXPLAINED]):
            output.note(line)
        if len(failed) > _MAX_EXPLAINED:
            output.note(f"... and {len(failed) - _MAX_EXPLAINED} more that failed")
    raise_unless_completed(last, is_explained=True)


def wait_for_end(
    context: contexts.Context, rows: Sequence[int], timeout: float | None = None
) -> list[jobs.Job]:
    """Wait until the jobs end, and print new states to stderr, tasks of an array in one line."""

    known: dict[int, jobs.Job] = {}

    def report(changed: Sequence[jobs.Job]) -> None:
        known.update((job.row, job) for job in changed)
        at = output.time_of_day(context.clock.now())
        states = [
            (job, _state(job, f" on {job.node_list}" if job.node_list else "")) for job in changed
        ]
        for tasks, state in _grouped(states):
            output.note(f"{at} {naming.names_of(tasks)} {state}")

    try:
        return wait.wait(context, rows, timeout_seconds=timeout, changed=report)
    except BaseException as exc:
        live = [job for job in known.values() if not job.ended]
        if live and interrupts.is_interrupt(exc):
            names = shlex.join(naming.names_of(live).split(", "))
            output.note(
                f"The {'jobs go' if len(live) > 1 else 'job goes'} on. Follow: orchestrator logs "
                f"-f {names}; wait: orchestrator wait {names}; cancel: orchestrator cancel {names}"
            )
        raise


@contextlib.contextmanager
def _hard_limit(timeout_seconds: float | None) -> Iterator[None]:
    """End the process soon after the time-out, even if the database or a disk hangs.

    Python cannot raise an exception while a system call hangs. The commands are safe against kills.
    """
    if timeout_seconds is None:
        yield
        return
    seconds = min(timeout_seconds + _GRACE_SECONDS, threading.TIMEOUT_MAX)
    timer = threading.Timer(seconds, _end_process, [timeout_seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end_process(timeout_seconds: float) -> None:
    with contextlib.suppress(OSError, ValueError):
        message = (
            f"Error: the jobs have not ended after {timeout_seconds:g} s; the database or a disk "
            "did not respond in time"
        )
        print(message, file=sys.stderr, flush=True)
    os._exit(errors.NotEndedError.exit_code)
