"""orchestrator submit."""

from __future__ import annotations

import typing
from collections.abc import Callable

import click

from orchestrator import errors, jobs
from orchestrator.cli import output, settings, spec_options

if typing.TYPE_CHECKING:
    from orchestrator.controller import context as contexts


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
    from orchestrator.controller import render

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
        click.echo(render.render(configuration, request), nl=False)
        spec_options.tell_command_line(request)
        return
    # A spec with problems is told before the database is loaded, which takes a fifth of a second.
    from orchestrator.cli import session
    from orchestrator.controller import submit

    context = session.open_context(ctx)
    if test_only:
        click.echo(submit.test_only(context, request))
        return
    if queue is None:
        queue = context.profile.queue_submissions
    job = submit.submit(context, request, queue=queue)
    if parsable:
        click.echo(job.job_id or f"@{job.row}")
    elif not wait_ or (format_ is None and not as_json):
        _announce(job, context, format_, as_json)
    if wait_:
        job = _wait(context, job)
        if format_ is not None or as_json:
            _announce(job, context, format_, as_json)
        if job.state is not jobs.JobState.COMPLETED:
            raise errors.OrchestratorError(_end(job))


def told_of(job: jobs.Job) -> str:
    """Return what became of a submission, in a sentence."""
    if job.waits_for_room and job.resend_at is not None:
        return f"@{job.row} {job.reason}; the next try is at {output.clock(job.resend_at)}"
    return f"Submitted batch job {job.job_id} (@{job.row}, {job.name})"


def _announce(job: jobs.Job, context: contexts.Context, format_: str | None, as_json: bool) -> None:
    if format_ is None and not as_json:
        click.echo(told_of(job))
        if job.waits_for_room:
            context.say(
                "It is sent by the first `orchestrator status`, `show`, `refresh` or `wait` after "
                f"that; `orchestrator wait @{job.row}` waits, and sends it."
            )
        return
    from orchestrator.cli import views

    chosen = output.chosen(format_, as_json)
    now = context.clock()
    row = views.job_row(job, now) if chosen in ("json", "jsonl") else views.job_line(job, now)
    output.items("jobs", [row], views.JOB_COLUMNS, chosen)


def _wait(context: contexts.Context, job: jobs.Job) -> jobs.Job:
    from orchestrator.controller import wait

    (ended,) = wait.wait(context, [job.row], changed=reporter(context))
    return ended


def reporter(context: contexts.Context) -> Callable[[jobs.Job], None]:
    """Return what tells a person of each new state, on stderr."""

    def changed(job: jobs.Job) -> None:
        reason = "" if job.reason in (None, "None") else f" ({job.reason})"
        where = f" on {job.node_list}" if job.node_list else ""
        stamp = output.clock(context.clock())
        context.say(f"{stamp} {job.job_id or f'@{job.row}'} {job.state}{where}{reason}")

    return changed


def _end(job: jobs.Job) -> str:
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    if job.job_id is None:
        return f"@{job.row} ended {job.state}: {job.reason}"
    return f"job {job.job_id} ended {job.state}{code}; its log: orchestrator logs {job.job_id}"
