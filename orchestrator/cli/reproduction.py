"""orchestrator diff and checkout."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator import reproduction
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument
from orchestrator.cli.output import difference_rows
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.session import contexts, selection


@commands.command(
    "diff",
    "orchestrator diff 123 124",
    "orchestrator diff 123_0 123_5",
    "orchestrator diff @7 @9 --json",
    table=difference_rows.COLUMNS,
    changes="nothing",
    prints=("differences",),
)
def diff(
    ctx: click.Context,
    first: str = argument(metavar="JOB", shell_complete=options.complete("job_references")),
    second: str = argument(metavar="JOB", shell_complete=options.complete("job_references")),
    refresh: bool | None = options.refresh,
    form: str | None = options.optional_form,
) -> None:
    """Show what two jobs differ in: spec, arguments, code, environment and results.

    Only differences are shown. The code of two snapshots is compared as a unified diff, other code
    by its commits and uncommitted changes. Results are the state, the exit code and the last value
    of each metric; speed is shown if it differs by 5 % or more.

    Exit code 0 if there is no difference but speed, 1 if there is.
    """
    from orchestrator.controller.reproduction import comparing

    context = session.open_context(ctx)
    on_demand.refresh(context, refresh)
    pair = [selection.one_job(context, reference) for reference in (first, second)]
    compared = comparing.compare(context, *pair)
    form = form or "table"
    if form == "table":
        difference_rows.print_differences(pair, compared.hosts, compared.differences)
    else:
        rows = difference_rows.rows(compared.differences)
        output.print_rows("differences", rows, difference_rows.COLUMNS, form)
    for sentence in compared.unknown:
        output.note(sentence)
    if reproduction.differs(compared.differences):
        ctx.exit(1)


@commands.command(
    "checkout",
    "orchestrator checkout 123 again",
    "orchestrator checkout 123_5 /tmp/point5",
    changes="nothing",
)
def checkout(
    context: contexts.Context,
    reference: str = argument(metavar="JOB", shell_complete=options.complete("job_references")),
    folder: Path = argument(metavar="DIR", type=value_types.OUTPUT_FOLDER),
) -> None:
    """Write the code of a job into DIR, and print the commands that run it again.

    The code is that of the job's snapshot. DIR must be new or empty. DIR.toml, beside it, describes
    the job: of an array task or a point of a sweep, with its own arguments.
    """
    from orchestrator.controller.reproduction import checkout as checking_out
    from orchestrator.controller.reproduction import stored_specs

    stored = stored_specs.find(context, selection.jobs_of(context, reference), or_all=True)
    done = checking_out.checkout(context, stored, folder)
    beside = "" if done.spec_file is None else f" and {done.spec_file}"
    click.echo(f"Wrote {folder} ({done.summary}){beside}. To run it again:")
    for command in done.commands:
        click.echo(f"  {command}")
    for sentence in done.notes:
        output.note(sentence)
