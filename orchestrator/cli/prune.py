"""orchestrator prune."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column
from orchestrator.controller.prune import plan, removal
from orchestrator.controller.session import clock_check, contexts, selection
from orchestrator.jobs import naming
from orchestrator.prune import Kind
from orchestrator.rows import row_values
from orchestrator.text import sizes

_COLUMNS = (
    Column("job"),
    Column("name", "name", drop=3),
    Column("what"),
    Column("size"),
    Column("reason", "text", drop=2),
    Column("path", "parts", drop=1),
)
#: Jobs that a message names.
_MAX_NAMES = 5


@commands.command(
    "prune",
    "orchestrator prune --checkpoints --older-than 30d",
    "orchestrator prune --run-folders --state FAILED,CANCELLED --older-than 7d --yes",
    "orchestrator prune --rows --sweep digits-scaling --yes",
    "orchestrator prune --code --yes",
    table=_COLUMNS,
    changes="other",
    when=lambda given: given["yes"],
    prints=("pruned",),
)
def prune(
    ctx: click.Context,
    references: tuple[str, ...] = options.references,
    checkpoints: bool = option(
        "--checkpoints", "Remove checkpoints in run folders, except the newest and the best."
    ),
    all_checkpoints: bool = option("--all-checkpoints", "Remove all checkpoints in run folders."),
    run_folders: bool = option(
        "--run-folders", "Remove run folders: logs, checkpoints and all other files."
    ),
    rows: bool = option(
        "--rows", "Remove jobs from the database, with their run folders and metrics."
    ),
    code: bool = option("--code", "Remove code snapshots that nothing refers to."),
    older_than: int | None = option(
        "--older-than", "Only jobs that ended longer ago: 12h, 30d, 8w.", value_types.duration
    ),
    larger_than: int | None = option(
        "--larger-than", "Only if more than this is removed of a job: 1GB.", value_types.size
    ),
    job_states: tuple[jobs.JobState, ...] | None = options.job_states,
    job_filter: options.JobFilter = options.job_filter,
    sweeps: tuple[str, ...] = options.of_sweeps,
    yes: bool = option("-y --yes", "Remove it; otherwise it is only listed."),
    form: str = options.form,
) -> None:
    """Remove run folders, checkpoints and rows of ended jobs.

    Without --yes nothing is changed. What a live job, a retry, a baseline, a schedule, an
    unfinished sweep or graph needs stays. The tasks of an array, and jobs that continue one
    another, go only together; so do the rows of all jobs of a sweep or graph. If the command is
    interrupted, the next one removes what is left. Exit code 1 if something could not be removed.
    """
    kinds = {
        Kind.CHECKPOINTS: checkpoints or all_checkpoints,
        Kind.RUN_FOLDER: run_folders,
        Kind.ROWS: rows,
    }
    of_jobs = frozenset(kind for kind, is_given in kinds.items() if is_given)
    conditions = (references, job_states, sweeps, *vars(job_filter).values())
    is_selected = any(conditions) or older_than is not None or larger_than is not None
    options.refuse(
        {
            "specify what to remove: --checkpoints, --run-folders, --rows or --code": (
                not of_jobs and not code
            ),
            "select jobs, for example with --older-than 30d": of_jobs and not is_selected,
            "--code takes no jobs: remove them, or add --checkpoints, --run-folders or --rows": (
                is_selected and not of_jobs
            ),
        }
    )
    context = session.open_context(ctx)
    selection = plan.Selection(
        query=_query(context, references, sweeps, job_states, job_filter),
        ended_before=_before(context, older_than),
        larger_than_bytes=larger_than,
        kinds=of_jobs,
        all_checkpoints=all_checkpoints,
        code=code,
    )
    with session.progress("Looking for what may be removed"):
        planned = plan.make(context, selection)
    if yes:
        with session.progress("Removing"):
            result = removal.carry_out(context, planned)
        items, problems = result.removed, result.problems
    else:
        items, problems = planned.items, []
    output.print_rows("pruned", [_row(item) for item in items], _COLUMNS, form, line=_line)
    _report(planned, items, is_done=yes)
    for problem in problems:
        output.note(f"Not removed: {problem}")
    if problems:
        ctx.exit(1)


def _query(
    context: contexts.Context,
    references: Sequence[str],
    sweeps: Sequence[str],
    job_states: tuple[jobs.JobState, ...] | None,
    job_filter: options.JobFilter,
) -> jobs.JobQuery:
    named = [job.row for word in references for job in selection.jobs_of(context, word)]
    with context.store.reading() as work:
        # Of a chain the last job decides, so all of them are selected.
        rows = {row for job in named for row in work.recovery.chain(job)}
    names, sweep_rows = selection.sweep_names_and_rows(context, sweeps)
    return jobs.JobQuery(
        rows=sorted(rows),
        states=job_states or (),
        sweeps=names,
        sweep_rows=sweep_rows,
        limit=None,
        **vars(job_filter),
    )


def _before(context: contexts.Context, older_than: int | None) -> datetime.datetime | None:
    if older_than is None:
        return None
    # With a wrong clock every job may look old.
    if doubt := clock_check.checked(context).clock.doubt:
        raise errors.ConflictError(doubt)
    return context.clock.now() - datetime.timedelta(seconds=older_than)


def _row(item: plan.Item) -> Mapping[str, object]:
    first = item.jobs[0] if item.jobs else None
    return {
        "job": naming.names_of(item.jobs) or None,
        **row_values.fields_of(first, ("row", "name")),
        "what": item.kind.value,
        "size_bytes": item.size_bytes,
        "reason": item.reason,
        "path": str(item.path),
    }


def _line(row: output.Row) -> dict[str, object]:
    size_bytes = row["size_bytes"]
    return {**row, "size": "" if size_bytes is None else sizes.text(size_bytes)}


def _report(planned: plan.Plan, items: Sequence[plan.Item], *, is_done: bool) -> None:
    for reason, kept in planned.kept.items():
        tasks = naming.by_submission(kept)
        names = ", ".join(naming.names_of(each) for each in tasks[:_MAX_NAMES])
        more = ", ..." if len(tasks) > _MAX_NAMES else ""
        output.note(f"Kept {output.count(len(kept), 'job')} ({names}{more}): {reason}")
    if planned.is_cut:
        output.note(
            f"Only {plan.MAX_FILES:,} files were examined: sizes are incomplete, and --larger-than "
            "selects only jobs that were examined"
        )
    if not items:
        output.note("Nothing to remove.")
        return
    size = sizes.text(sum(item.size_bytes or 0 for item in items))
    counts: dict[Kind, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    what = ", ".join(_counted(kind, number) for kind, number in counts.items())
    if is_done:
        output.note(f"Removed {size}: {what}.")
    else:
        output.note(f"Would remove {size}: {what}. Nothing was changed; --yes removes it.")


def _counted(kind: Kind, number: int) -> str:
    if kind is Kind.ROWS:
        return output.count(number, "submission") + " with all rows"
    if kind is Kind.CHECKPOINTS:
        return "checkpoints of " + output.count(number, "submission")
    return output.count(number, kind.value)
