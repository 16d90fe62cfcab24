"""orchestrator cancel, hold, release, requeue and wait."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from orchestrator import errors, jobs
from orchestrator.cli import options, output, session
from orchestrator.cli.output import job_rows
from orchestrator.controller.actions import cancel as cancellation
from orchestrator.controller.actions import confirmed, hold, requeue, wait
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming

#: Time after --timeout in which `wait` may end by itself.
_GRACE_SECONDS = 2.0

timeout_option = options.option(
    "--timeout",
    "Wait at most this long until Slurm shows the change.",
    options.seconds(),
    metavar="SECONDS",
    default=confirmed.CONFIRM_SECONDS,
)


def _job_action(function: Callable[..., None]) -> Callable[..., Any]:
    """Add the selection of jobs and --timeout; the command gets the context and the jobs."""

    @options.job_selection
    @timeout_option
    @session.with_context
    @functools.wraps(function)
    def command(
        context: contexts.Context, selection: options.Selection, timeout: float, **kwargs: Any
    ) -> None:
        selected = session.selected_jobs(context, selection)
        function(context, selected, timeout_seconds=timeout, **kwargs)

    return command


@click.command("cancel")
@_job_action
def cancel(
    context: contexts.Context, selected: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel reports success even for jobs that it does not know, so the queue is checked afterwards.

    \b
    Examples:
      orchestrator cancel 123
      orchestrator cancel 124_3 '125_[0-9]'
    """
    outcomes = cancellation.cancel(context, selected, confirm_seconds=timeout_seconds)
    groups: dict[tuple[str, str], list[jobs.Job]] = {}
    for outcome in outcomes:
        if outcome.why:
            continue
        job = outcome.job
        verb = "had already ended:" if outcome.already else "is"
        more = "; its retry is cancelled" if outcome.withdrawn else ""
        if outcome.followed_by is not None:
            more = f"; it is continued by {naming.name_of(outcome.followed_by)}"
        groups.setdefault((job.token, f"{verb} {job.state}{more}"), []).append(job)
    for (_, result), tasks in groups.items():
        click.echo(f"{naming.names_of(tasks)} {result}")
    raise_unless_cancelled(outcomes)


def raise_unless_cancelled(outcomes: Sequence[cancellation.Cancelled]) -> None:
    """Raise SlurmError or ConflictError if jobs were not cancelled."""
    problems = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    pending = [outcome.job for outcome in outcomes if not outcome.confirmed and not outcome.why]
    if pending:
        problems.append(_not_confirmed(naming.names_of(pending), contexts.scheduler_name(pending)))
    if problems:
        raise (errors.SlurmError if pending else errors.ConflictError)("\n".join(problems))


def _not_confirmed(names: str, scheduler: str, state: str = "") -> str:
    shown = f" {state}" if state else ""
    return (
        f"{scheduler[0].upper()}{scheduler[1:]} accepted the request, but still shows "
        f"{names}{shown}; check with `orchestrator status {names}`"
    )


@click.command("hold")
@_job_action
def hold_jobs(
    context: contexts.Context, selected: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Prevent pending jobs from starting.

    Waits until Slurm shows that they are held. Running jobs are not held: `requeue --hold` stops
    and holds them.

    \b
    Example:
      orchestrator hold 123 124
    """
    print_outcomes(
        hold.hold(context, selected, confirm_seconds=timeout_seconds), already="was already held"
    )


@click.command("release")
@_job_action
def release(
    context: contexts.Context, selected: Sequence[jobs.Job], *, timeout_seconds: float
) -> None:
    """Allow held jobs to start.

    Waits until Slurm shows that they are not held. This includes jobs that were requeued in held
    state (REQUEUE_HOLD, SPECIAL_EXIT).

    \b
    Example:
      orchestrator release --name wrn-cifar100
    """
    print_outcomes(
        hold.release(context, selected, confirm_seconds=timeout_seconds), already="is not held"
    )


@click.command("requeue")
@_job_action
@options.option("--hold", "Hold the jobs; `release` lets them start.")
def requeue_jobs(
    context: contexts.Context, selected: Sequence[jobs.Job], *, timeout_seconds: float, hold: bool
) -> None:
    """Requeue jobs under the same job ID.

    Waits until Slurm shows it. A running job is stopped, and its script starts again as the next
    attempt. A job that ended can be requeued while Slurm remembers it (MinJobAge, often 5 minutes);
    after that use `resubmit`.

    \b
    Example:
      orchestrator requeue --hold 123
    """
    outcomes = requeue.requeue(context, selected, hold=hold, confirm_seconds=timeout_seconds)
    print_outcomes(outcomes, already="is already pending")


def print_outcomes(outcomes: Sequence[confirmed.Outcome], *, already: str) -> None:
    """Print one line for each job, or for tasks of an array with the same result.

    Raises SlurmError if Slurm refused or does not show the change, ConflictError for other
    problems.
    """
    problems: list[str] = []
    for group in _same_outcomes(outcomes):
        outcome, job = group[0], group[0].job
        names = naming.names_of([member.job for member in group])
        scheduler = contexts.scheduler_name([job])
        reason = job_rows.reason_of(job)
        state = f"{job.state} ({reason})" if reason else str(job.state)
        match outcome.end:
            case confirmed.End.DONE:
                click.echo(f"{names} is {state}")
            case confirmed.End.ALREADY:
                click.echo(f"{names} {already}: {state}")
            case confirmed.End.IMPOSSIBLE | confirmed.End.TOO_LATE:
                # An array that was never submitted is named by its first row.
                problems.append(_explanation(outcome, names) if job.job_id else outcome.why)
            case confirmed.End.REFUSED:
                refuser = f"{scheduler[0].upper()}{scheduler[1:]}"
                problems.append(
                    f"{refuser} refused the request for {names}: {_explanation(outcome, names)}"
                )
            case confirmed.End.UNSEEN:
                problems.append(_not_confirmed(names, scheduler, state))
    if problems:
        slurms = (confirmed.End.REFUSED, confirmed.End.UNSEEN)
        of_slurm = any(outcome.end in slurms for outcome in outcomes)
        raise (errors.SlurmError if of_slurm else errors.ConflictError)("\n".join(problems))


def _same_outcomes(outcomes: Sequence[confirmed.Outcome]) -> list[list[confirmed.Outcome]]:
    """Group the tasks of one array that have the same outcome."""
    groups: dict[tuple[object, ...], list[confirmed.Outcome]] = {}
    for outcome in outcomes:
        job = outcome.job
        row = job.row if job.array_task_id is None else 0
        reason = "" if outcome.why else job.reason
        key = (job.token, row, outcome.end, job.state, reason, _explanation(outcome, "TASKS"))
        groups.setdefault(key, []).append(outcome)
    return list(groups.values())


def _explanation(outcome: confirmed.Outcome, names: str) -> str:
    return outcome.why.replace(naming.name_of(outcome.job), names)


@click.command("wait")
@options.job_selection
@options.option("--timeout", "Wait at most this long.", options.seconds(), metavar="SECONDS")
@options.optional_format
@click.pass_context
def wait_for_jobs(
    ctx: click.Context, selection: options.Selection, timeout: float | None, form: str | None
) -> None:
    """Wait until jobs have ended.

    Exit code 0 if all jobs are COMPLETED, 1 if one ended otherwise, 124 if --timeout passes first.

    However many processes wait, squeue runs once per interval. The command ends at most two seconds
    after --timeout, even if Slurm, the database or a file system hangs.

    \b
    Example:
      orchestrator wait 123 124
    """
    with _hard_limit(timeout):
        context = session.open_context(ctx)
        selected = session.selected_jobs(context, selection, with_ended=True)
        rows = [job.row for job in selected]
        last = wait.wait(context, rows, timeout_seconds=timeout, changed=state_reporter(context))
    if form is not None:
        job_rows.print_jobs(last, context.clock.now(), form)
    live = [job for job in last if not job.ended]
    if live:
        raise errors.NotEndedError(
            f"{len(live)} of {len(last)} jobs have not ended after {timeout:g} s"
        )
    raise_unless_completed(last)


def raise_unless_completed(last: Sequence[jobs.Job]) -> None:
    """Raise OrchestratorError unless all jobs are COMPLETED."""
    groups: dict[tuple[str, jobs.JobState], list[jobs.Job]] = {}
    for job in last:
        if job.state is not jobs.JobState.COMPLETED:
            groups.setdefault((job.token, job.state), []).append(job)
    if not groups:
        return
    if len(last) == 1:
        job, name = last[0], naming.name_of(last[0])
        code = job_rows.exit_text(job.exit_code, job.exit_signal)
        details = f", exit code {code}; see `orchestrator logs {name}`" if code else ""
        details = details or f": {job.reason}"
        raise errors.OrchestratorError(f"job {name} ended {job.state}{details}")
    states = ", ".join(f"{naming.names_of(tasks)} {state}" for (_, state), tasks in groups.items())
    failed = sum(map(len, groups.values()))
    raise errors.OrchestratorError(f"{failed} of {len(last)} jobs did not complete: {states}")


def state_reporter(context: contexts.Context) -> Callable[[Sequence[jobs.Job]], None]:
    """Return a function that prints new states to stderr, tasks of an array in one line."""

    def report(changed: Sequence[jobs.Job]) -> None:
        groups: dict[tuple[str, str], list[jobs.Job]] = {}
        for job in changed:
            reason = job_rows.reason_of(job)
            nodes = f" on {job.node_list}" if job.node_list else ""
            state = f"{job.state}{nodes}" + ("" if reason is None else f" ({reason})")
            groups.setdefault((job.token, state), []).append(job)
        at = output.time_of_day(context.clock.now())
        for (_, state), tasks in groups.items():
            output.note(f"{at} {naming.names_of(tasks)} {state}")

    return report


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
