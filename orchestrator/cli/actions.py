"""orchestrator cancel, hold, release, requeue and wait."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.api import actions as api_actions
from orchestrator.cli import commands, interrupts, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import job_tables
from orchestrator.controller.actions import confirmed, wait
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.rows import action_reports, row_values

#: Time after --timeout in which `wait` may end by itself.
_GRACE_SECONDS = 2.0

#: Of an array. The others fail for the same reasons, and each log takes time.
_MAX_EXPLAINED = 20

timeout_option = option(
    "--timeout",
    "Wait at most this long until Slurm shows the change.",
    value_types.seconds(),
    metavar="SECONDS",
    default=confirmed.CONFIRM_SECONDS,
)


@commands.command(
    "cancel",
    "orchestrator cancel 123",
    "orchestrator cancel 124_3 '125_[0-9]'",
    changes="jobs",
    prints=("jobs",),
)
def cancel(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
    form: str | None = options.optional_form,
) -> None:
    """Cancel jobs, and wait until Slurm shows that they ended.

    scancel reports success even for jobs that it does not know, so the queue is checked afterwards.
    """
    _carry_out(context, "cancel", selection, timeout, form)


def cancel_live(
    context: contexts.Context, live: Sequence[jobs.Job], timeout: float
) -> list[jobs.Job]:
    """Cancel live jobs and return them. Raises SlurmError or ConflictError if that fails."""
    if live:
        api_actions.carry_out(context, "cancel", live, timeout).raise_problems()
    return confirmed.stored(context, live)


@commands.command("hold", "orchestrator hold 123 124", changes="jobs", prints=("jobs",))
def hold_jobs(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
    form: str | None = options.optional_form,
) -> None:
    """Prevent pending jobs from starting.

    Waits until Slurm shows that they are held. Running jobs are not held: `requeue --hold` stops
    and holds them.
    """
    _carry_out(context, "hold", selection, timeout, form)


@commands.command(
    "release", "orchestrator release --name wrn-cifar100", changes="jobs", prints=("jobs",)
)
def release(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
    form: str | None = options.optional_form,
) -> None:
    """Allow held jobs to start.

    Waits until Slurm shows that they are not held. This includes jobs that were requeued in held
    state (REQUEUE_HOLD, SPECIAL_EXIT).
    """
    _carry_out(context, "release", selection, timeout, form)


@commands.command("requeue", "orchestrator requeue --hold 123", changes="jobs", prints=("jobs",))
def requeue_jobs(
    context: contexts.Context,
    selection: options.Selection = options.selection,
    timeout: float = timeout_option,
    hold: bool = option("--hold", "Hold the jobs; `release` lets them start."),
    form: str | None = options.optional_form,
) -> None:
    """Requeue jobs under the same job ID.

    Waits until Slurm shows it. A running job is stopped, and its script starts again as the next
    attempt. A job that ended can be requeued while Slurm remembers it (MinJobAge, often 5 minutes);
    after that use `resubmit`.
    """
    action: api_actions.Action = "requeue-hold" if hold else "requeue"
    _carry_out(context, action, selection, timeout, form)


def _carry_out(
    context: contexts.Context,
    action: api_actions.Action,
    selection: options.Selection,
    timeout: float,
    form: str | None,
) -> None:
    selected = selection.find(context)
    report = api_actions.carry_out(context, action, selected, timeout)
    print_report(context, report, selected, form)


def print_report(
    context: contexts.Context,
    report: action_reports.Report,
    selected: Sequence[jobs.Job],
    form: str | None,
) -> None:
    """Print what was done, or the jobs as they are now if a format is given.

    Raises SlurmError or ConflictError with the problems.
    """
    if form is not None:
        job_tables.print_jobs(confirmed.stored(context, selected), context.clock.now(), form)
    for line in report.lines if form is None else ():
        click.echo(line)
    report.raise_problems()


@commands.command("wait", "orchestrator wait 123 124", changes="nothing", prints=("jobs",))
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
        job_tables.print_jobs(last, context.clock.now(), form)
    if timeout is not None and (error := action_reports.not_ended(last, timeout)):
        raise error
    action_reports.raise_unless_completed(last)


def explain_failures(context: contexts.Context, last: Sequence[jobs.Job]) -> None:
    """Raise OrchestratorError unless all jobs are COMPLETED, after an explanation on stderr."""
    failed = [job for job in last if job.state is not jobs.JobState.COMPLETED]
    if failed:
        from orchestrator.cli import explain

        for line in explain.lines(context, failed[:_MAX_EXPLAINED]):
            output.note(line)
        if len(failed) > _MAX_EXPLAINED:
            output.note(f"... and {len(failed) - _MAX_EXPLAINED} more that failed")
    action_reports.raise_unless_completed(last, is_explained=True)


def wait_for_end(
    context: contexts.Context, rows: Sequence[int], timeout: float | None = None
) -> list[jobs.Job]:
    """Wait until the jobs end, and print new states to stderr, tasks of an array in one line."""

    known: dict[int, jobs.Job] = {}

    def report(changed: Sequence[jobs.Job]) -> None:
        known.update((job.row, job) for job in changed)
        at = row_values.time_of_day(context.clock.now())
        states = [
            (job, action_reports.state_of(job, f" on {job.node_list}" if job.node_list else ""))
            for job in changed
        ]
        for tasks, state in action_reports.grouped(states):
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
