"""orchestrator render, submit, resubmit and track."""

from __future__ import annotations

import os
import pathlib
import sys
import typing
from collections.abc import Sequence

import click

from orchestrator import config, errors, jobs
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, spec_options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import terminal
from orchestrator.controller.submission import job_scripts, requests
from orchestrator.jobs import naming

if typing.TYPE_CHECKING:
    from orchestrator.controller.session import contexts


@commands.command(
    "render",
    "orchestrator render examples/digits_ddp.toml --set resources.nodes=2",
    changes="nothing",
)
def render(
    ctx: click.Context,
    job: requests.Description = spec_options.job,
    _scheduler: None = options.scheduler,
    snapshot: bool | None = options.snapshot,
) -> None:
    """Print the batch script of a job.

    The output is byte for byte the script that `submit` passes to sbatch. Slurm is not needed.
    """
    configuration = session.configuration_of(ctx)
    request = requests.request(job.with_snapshot(snapshot), configuration, output.note)
    _print_script(ctx, configuration, request)


def _print_script(
    ctx: click.Context, configuration: config.Configuration, request: job_scripts.Request
) -> None:
    """Print the script, and what sbatch's command line has beside it."""
    script = job_scripts.as_submitted(configuration, request, os.environ)
    terminal.print_exactly(script)
    spec_options.print_command_line(request)
    if configuration.nodes.exclude == "auto" and not job_scripts.is_local(
        configuration, os.environ
    ):
        from orchestrator.controller.nodes import exclusion

        for sentence in exclusion.expected(session.open_context(ctx), request.spec, script):
            output.note(sentence)


@commands.command(
    "submit",
    "orchestrator submit train.py --wait",
    "orchestrator submit train.py --gpus-per-node 4 --time-limit 1:00:00 -- --lr 0.1",
    "orchestrator submit examples/digits_ddp.toml --set resources.nodes=2 --wait",
    "orchestrator submit train.sbatch --time-limit 2:00:00 -- --epochs 5",
    "orchestrator submit -- python -m package.module",
    "orchestrator submit --like 123 --set args.lr=0.2",
    changes="jobs",
    when=lambda given: not (given["dry_run"] or given["test_only"]),
    prints=("jobs",),
)
def submit(
    ctx: click.Context,
    job: requests.Description = spec_options.job,
    _scheduler: None = options.scheduler,
    dry_run: bool = option("--dry-run", "Print the script, as `render` does."),
    test_only: bool = option("--test-only", "Ask Slurm when the job would start."),
    parsable: bool = option("--parsable", "Print only the job ID."),
    save_spec: pathlib.Path | None = option(
        "--save-spec",
        "Also write the job as a spec to FILE, which must not exist.",
        value_types.OUTPUT_PATH,
        metavar="FILE.toml",
    ),
    like: str | None = option(
        "--like",
        "Submit a job like this one: the same spec, folder and snapshot. Other options change it; "
        "arguments after -- are added. Of an array task: a job with its arguments.",
        "JOB",
        shell_complete=options.complete("job_references"),
    ),
    snapshot: bool | None = options.snapshot,
    queue: bool | None = options.queue,
    wait_: bool = options.wait,
    form: str | None = options.optional_form,
) -> None:
    """Submit a job exactly once.

    The submission is stored before sbatch runs. If the reply of sbatch is lost, orchestrator finds
    the job in Slurm; it never submits a second one.

    SCRIPT is a program of your own, train.py or run.sh, and arguments after -- are passed to it.
    SPEC is a TOML file that describes a job; --save-spec writes one.

    FILE.sbatch is a batch script of your own. It runs unchanged. Options given here override its
    #SBATCH directives, and arguments after -- are passed to the script.
    """
    plain = {"--dry-run": dry_run, "--test-only": test_only, "--parsable": parsable}
    options.refuse_format(form, plain)
    options.refuse(
        {
            "--save-spec cannot be combined with --like": save_spec and like,
            "a plan writes no file: remove --save-spec": save_spec and session.approval_of(ctx),
        }
    )
    configuration = session.configuration_of(ctx)
    context: contexts.Context | None = None
    if like is not None:
        context = session.open_context(ctx)
        tasks = _jobs_of(context, like)
        context, request = requests.like(context, tasks, job, snapshot)
    else:
        job = job.with_snapshot(snapshot)
        request = requests.request(job, configuration, output.note)
    if save_spec is not None:
        spec_options.save(job, save_spec)
    if dry_run:
        _print_script(ctx, configuration, request)
        return
    from orchestrator.controller.submission import submit as submission

    context = context or session.open_context(ctx)
    if test_only:
        click.echo(submission.test_only(context, request))
        return
    tasks = submission.submit_requested(
        context, request, queue=queue, is_moved=like is not None and "job.chdir" in job.flags
    )
    first = tasks[0]
    if parsable:
        click.echo(_parsable(first))
    elif form is None:
        click.echo(_submission_line(tasks))
        if first.is_deferred:
            output.note(
                "The next `orchestrator status`, `show`, `refresh` or `wait` after that time "
                f"submits it; `orchestrator wait @{first.row}` waits until it has ended."
            )
    if wait_:
        from orchestrator.cli import actions

        tasks = actions.wait_for_end(context, [job.row for job in tasks])
    if form is not None:
        _print_jobs(context, tasks, form)
    if wait_:
        actions.explain_failures(context, tasks)


def _jobs_of(context: contexts.Context, reference: str) -> list[jobs.Job]:
    # Few submissions need it.
    from orchestrator.controller.session import selection

    return selection.jobs_of(context, reference)


def _print_jobs(context: contexts.Context, shown: Sequence[jobs.Job], form: str) -> None:
    # It loads more modules.
    from orchestrator.cli.output import job_tables

    job_tables.print_jobs(shown, context.clock.now(), form)


def _submission_line(tasks: Sequence[jobs.Job]) -> str:
    if not tasks[0].is_deferred:
        return naming.submitted(tasks)
    # Few jobs are deferred, and this loads more modules.
    from orchestrator.rows import submission_lines

    return submission_lines.of_job(tasks)


def _parsable(job: jobs.Job) -> str:
    return job.array_job_id or naming.name_of(job)


@commands.command(
    "resubmit",
    "orchestrator resubmit @7",
    "orchestrator resubmit '41_[3,7]'",
    changes="jobs",
    prints=("jobs",),
)
def resubmit(
    context: contexts.Context,
    references: tuple[str, ...] = argument(
        nargs=-1, required=True, metavar="JOB...", shell_complete=options.complete("job_references")
    ),
    fresh: bool = option("--fresh", "Render the stored spec with the current templates."),
    queue: bool | None = options.queue,
    parsable: bool = option("--parsable", "Print only the job IDs, one per line."),
    form: str | None = options.optional_form,
) -> None:
    """Submit jobs again that ended or were never submitted.

    A job that ended becomes a new job with the same script, submitted from the same folder. Array
    tasks that ended become a new array of those tasks, with the same task numbers. A job in state
    NOT_SUBMITTED keeps its row, script and run folder: if Slurm received it after all, only one of
    the two runs.
    """
    from orchestrator.controller.resubmission import resubmit as resubmission
    from orchestrator.controller.session import selection

    options.refuse_format(form, {"--parsable": parsable})
    selected = selection.jobs_and_sweeps(context, references, ())
    problems: list[errors.OrchestratorError] = []
    submitted: list[jobs.Job] = []
    for result in resubmission.resubmit_each(
        context, selected, fresh=fresh, queue=queue, argv=sys.argv
    ):
        if isinstance(result, errors.OrchestratorError):
            problems.append(result)
            continue
        submitted += result
        if form is None:
            click.echo(_parsable(result[0]) if parsable else _submission_line(result))
    if form is not None:
        _print_jobs(context, submitted, form)
    if problems:
        # A conflict's exit code says that nothing else failed.
        worst = [exc for exc in problems if not isinstance(exc, errors.ConflictError)] or problems
        error = errors.OrchestratorError("\n".join(map(str, problems)))
        error.exit_code = worst[0].exit_code
        raise error


@commands.command(
    "track",
    "orchestrator track 123",
    "orchestrator track 123 --name baseline --label team=vision",
    changes="other",
    prints=("jobs",),
)
def track(
    context: contexts.Context,
    job_ids: tuple[str, ...] = argument(nargs=-1, required=True, metavar="JOBID..."),
    name: str | None = option(
        "--name", "Name for the job here. Default: its name in Slurm.", "NAME"
    ),
    labels: tuple[str, ...] = option("--label", "Label.", "KEY=VALUE", multiple=True),
    patterns: tuple[str, ...] = option(
        "--pattern", "Pattern that finds metrics in the log.", "NAME", multiple=True
    ),
    log: str | None = option("--log", "The log, if Slurm no longer knows its path.", "PATH"),
    form: str | None = options.optional_form,
) -> None:
    """Track jobs that were submitted without orchestrator.

    Commands such as status, show, logs, metrics, wait and cancel then accept them like other jobs.
    The ID of an array means all its tasks. A job that ended can be tracked while squeue or sacct
    still shows it.
    """
    from orchestrator.controller.actions import track_jobs

    if name is not None and (misfit := track_jobs.name_misfit(name)):
        raise click.UsageError(f"--name {misfit}")
    if wrong := [label for label in labels if "=" not in label]:
        raise click.UsageError(f"write --label KEY=VALUE (got {wrong[0]})")
    given = track_jobs.Options(name=name, labels=labels, patterns=patterns, log=log)
    problems: list[errors.NotFoundError | errors.ConflictError] = []
    all_tracked: list[jobs.Job] = []
    for job_id in job_ids:
        try:
            tracked, already = track_jobs.track(context, job_id, given)
        except (errors.NotFoundError, errors.ConflictError) as exc:
            problems.append(exc)
            continue
        all_tracked += tracked
        if form is None:
            click.echo(_tracked_line(job_id, tracked, already=already))
        started = (job for job in tracked if job.state is not jobs.JobState.PENDING)
        if job := next((job for job in started if job.stdout_path is None), None):
            output.note(f"The log of {job.job_id} is unknown: set it with `--log PATH`.")
    if form is not None:
        _print_jobs(context, all_tracked, form)
    if problems:
        raise type(problems[0])("\n".join(map(str, problems)))


def _tracked_line(job_id: str, tracked: list[jobs.Job], *, already: bool) -> str:
    first, last = tracked[0], tracked[-1]
    rows = f"@{first.row}" if first is last else f"@{first.row} to @{last.row}"
    if already:
        return f"{job_id} is already tracked as {rows} ({first.name})"
    state = first.state if first is last else f"{len(tracked)} tasks"
    return f"Tracking {job_id} ({rows}, {first.name}): {state}"
