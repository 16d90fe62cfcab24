"""orchestrator submit."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import output, settings, spec_options, terminal

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import contexts


def queue_option(command: Callable[..., object]) -> Callable[..., object]:
    """Add --queue/--no-queue."""
    return click.option(
        "--queue/--no-queue",
        default=None,
        help="Keep it and send it when there is room, where Slurm refuses it for now; default: the "
        "profile's queue_submissions.",
    )(command)


@click.command(short_help="Submit a job to Slurm, exactly once.")
@spec_options.spec_options
@settings.scheduler_option
@click.option("--dry-run", is_flag=True, help="Show the script, as `render` does.")
@click.option("--test-only", is_flag=True, help="Ask Slurm when it would start; submit nothing.")
@click.option("--parsable", is_flag=True, help="Print the job ID alone.")
@queue_option
@click.option("--wait", "wait_", is_flag=True, help="Wait for its end; exit 1 unless COMPLETED.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    dry_run: bool,
    test_only: bool,
    parsable: bool,
    queue: bool | None,
    wait_: bool,
    format_: str | None,
    as_json: bool,
    **options: object,
) -> None:
    """Submit a job to Slurm, exactly once.

    The intent is stored before sbatch is called. When sbatch's answer is lost, the job is looked
    for in Slurm and adopted; it is never sent twice.

    FILE.sbatch is a batch script of your own: it runs as it stands, with its own directives;
    options given here win over them, and what stands behind -- is for the script.

    \b
    Examples:
      orchestrator submit examples/digits_ddp.toml --set resources.nodes=2 --wait
      orchestrator submit train.sbatch --time-limit 2:00:00 -- --epochs 5
      orchestrator submit --name x --nodes 2 --gpus-per-node 4 --time-limit 1:00:00 -- train.py
    """
    from orchestrator.controller.submission import render

    for option, given in (
        ("--dry-run", dry_run),
        ("--test-only", test_only),
        ("--parsable", parsable),
    ):
        if given:
            output.refuse_format(option, format_, as_json)
    configuration = settings.configuration_of(ctx)
    request = spec_options.request(options, configuration)
    if dry_run:
        is_local = render.is_local(configuration, os.environ)
        terminal.print_exactly(render.render(configuration, request, is_local=is_local).text)
        spec_options.tell_command_line(request)
        return
    # A spec with problems is told before the database is loaded, which takes a fifth of a second.
    from orchestrator.cli import session
    from orchestrator.controller.actions import wait
    from orchestrator.controller.submission import submit

    context = session.open_context(ctx)
    if test_only:
        click.echo(submit.test_only(context, request))
        return
    if queue is None:
        queue = context.profile.queue_submissions
    first = submit.submit(context, request, queue=queue)
    if parsable:
        click.echo(first.array_job_id or first.job_id or f"@{first.row}")
        if not wait_:
            return
    tasks = submit.tasks_of(context, first)
    if not parsable and (not wait_ or (format_ is None and not as_json)):
        _announce(tasks, context, format_, as_json)
    if wait_:
        tasks = wait.wait(context, [job.row for job in tasks], changed=reporter(context))
        if format_ is not None or as_json:
            _announce(tasks, context, format_, as_json)
        bad = [job for job in tasks if job.state is not jobs.JobState.COMPLETED]
        if bad:
            told = _end(bad[0])
            more = f"{len(bad)} of {len(tasks)} tasks did not complete; the first: "
            raise errors.OrchestratorError(told if len(tasks) == 1 else more + told)


def told_of(tasks: Sequence[jobs.Job]) -> str:
    """Return what became of a submission, of one job or of an array's tasks, in a sentence."""
    first = tasks[0]
    rows = f"@{first.row}" + (f"-{tasks[-1].row}" if len(tasks) > 1 else "")
    if first.is_deferred and first.resend_at is not None:
        return f"{rows} {first.reason}; the next try is at {output.clock(first.resend_at)}"
    if first.array_job_id is None:
        return f"Submitted batch job {first.job_id} ({rows}, {first.name})"
    count = f"{len(tasks)} task" + ("s" if len(tasks) > 1 else "")
    return f"Submitted batch job {first.array_job_id} ({rows}, {first.name}, {count})"


def _announce(
    tasks: Sequence[jobs.Job], context: contexts.Context, format_: str | None, as_json: bool
) -> None:
    if format_ is None and not as_json:
        click.echo(told_of(tasks))
        if tasks[0].is_deferred:
            context.reporter.info(
                "It is sent by the first `orchestrator status`, `show`, `refresh` or `wait` after "
                f"that; `orchestrator wait @{tasks[0].row}` waits, and sends it."
            )
        return
    from orchestrator.cli import views

    chosen = output.chosen(format_, as_json)
    now = context.clock.now()
    plain = output.is_json(chosen)
    rows = [views.job_row(job, now) if plain else views.job_line(job, now) for job in tasks]
    output.items("jobs", rows, views.JOB_COLUMNS, chosen)


def reporter(context: contexts.Context) -> Callable[[Sequence[jobs.Job]], None]:
    """Return what tells a person of new states, on stderr; tasks of an array in one line."""
    from orchestrator.jobs import naming

    def changed(news: Sequence[jobs.Job]) -> None:
        stamp = output.clock(context.clock.now())
        alike: dict[tuple[str, str], list[jobs.Job]] = {}
        for job in news:
            reason = "" if job.reason in (None, "None") else f" ({job.reason})"
            where = f" on {job.node_list}" if job.node_list else ""
            alike.setdefault((job.token, f"{job.state}{where}{reason}"), []).append(job)
        for (_, told), several in alike.items():
            context.reporter.info(f"{stamp} {naming.names_of(several)} {told}")

    return changed


def _end(job: jobs.Job) -> str:
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    if job.job_id is None:
        return f"@{job.row} ended {job.state}: {job.reason}"
    return f"job {job.job_id} ended {job.state}{code}; its log: orchestrator logs {job.job_id}"
