"""orchestrator show."""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Sequence

import click

from orchestrator import diagnosis, jobs
from orchestrator.cli import array, card, completing, output, session, terminal, views
from orchestrator.controller.recovery import chains
from orchestrator.controller.resubmission import resend
from orchestrator.controller.session import queries
from orchestrator.controller.usage import efficiency as used
from orchestrator.text import escaping


@click.command(short_help="Show all that is known of one job.")
@click.argument("reference", metavar="JOB", shell_complete=completing.job_references)
@click.option("--script", "script_", is_flag=True, help="Print the submitted script alone.")
@click.option("--spec", "spec_", is_flag=True, help="Print the spec alone, as JSON.")
@click.option("--diff", "diff_", is_flag=True, help="Print the working tree's changes alone.")
@session.refresh_options
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    reference: str,
    script_: bool,
    spec_: bool,
    diff_: bool,
    refresh_: bool | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """Show all that is known of one job: state and why, attempts, history, where it came from.

    Of an array: its tasks by state, and the first that ended badly.

    \b
    Examples:
      orchestrator show 123
      orchestrator show digits-ddp --script
    """
    for option, given in (("--script", script_), ("--spec", spec_), ("--diff", diff_)):
        if given:
            output.refuse_format(option, format_, as_json)
    context = session.open_context(ctx)
    if refresh_ is not False:
        resend.refresh_or_warn(context, floor_seconds=0 if refresh_ else None)
    tasks = session.jobs_of(context, reference)
    details = queries.details(context, tasks[0])
    papers = json.loads(details.submission.provenance)
    if script_:
        terminal.print_exactly(details.submission.script)
        return
    if spec_:
        terminal.print_exactly(details.submission.spec + "\n")
        return
    if diff_:
        terminal.print_exactly(papers.get("git_diff") or "")
        return
    chosen = format_ or ("json" if as_json else "table")
    now = context.clock.now()
    if len(tasks) > 1:
        _show_array(tasks, papers, chosen, now)
        return
    row = views.job_row(details.job, now)
    row["arguments"] = queries.arguments(details)
    if chosen in ("tsv", "csv"):
        output.items("job", [views.job_line(details.job, now)], views.JOB_COLUMNS, chosen)
        return
    told = used.of(context, details, ask=refresh_ is not False)
    chain = chains.of(context, details.job)
    planned = chain.planned
    row["next_start_at"] = None if planned is None else planned.decision.due_at
    if chosen == "table":
        _print(details, row, papers, now, told, chain)
        return
    row |= card.rows(told)
    row["continued_by"] = None if chain.continued_by is None else chain.continued_by.row
    row["chain"] = [views.link_row(link) for link in chain.links]
    row["attempts"] = [views.attempt_row(attempt) for attempt in details.attempts]
    row["events"] = [views.event_row(event) for event in details.events]
    row["provenance"] = papers
    output.items("job", [row], views.JOB_COLUMNS, chosen)


def _show_array(
    tasks: Sequence[jobs.Job], papers: dict[str, object], chosen: str, now: datetime.datetime
) -> None:
    record = array.summary(tasks, papers)
    if chosen == "table":
        array.show(tasks, record, now)
    elif output.is_json(chosen):
        output.items("array", [record], (), chosen)
    else:
        lines = [views.job_line(job, now) for job in tasks]
        output.items("jobs", lines, views.JOB_COLUMNS, chosen)


def _print(
    details: queries.Details,
    row: dict[str, object],
    papers: dict[str, object],
    now: datetime.datetime,
    told: used.Told,
    chain: chains.Chain,
) -> None:
    job = details.job
    commit = str(papers.get("git_commit") or "")
    dirty = " with changes (show --diff)" if papers.get("git_dirty") else ""
    limit = output.elapsed(job.time_limit_seconds)
    elapsed = output.elapsed(views.elapsed_seconds(job, now))
    fields = [
        ("Job", f"{job.job_id or '-'} (@{job.row})"),
        ("Name", job.name),
        ("State", _state(job)),
        ("Why", diagnosis.explain_reason(job)),
        ("Next try", row["resend_at"]),
        ("Next start", row["next_start_at"]),
        *(("Alert", f"{one.rule}: {one.detail}") for one in job.current_alerts),
        ("Exit code", _exit(job)),
        ("Cause", _cause(job)),
        ("Cluster", job.cluster),
        ("Partition", job.partition),
        ("Account", job.account),
        ("QOS", job.qos),
        ("Nodes", _nodes(job)),
        ("GPUs", job.gpus),
        ("Time", f"{elapsed} of {limit}" if elapsed and limit else elapsed or limit),
        ("Submitted", row["submitted_at"]),
        ("Started", row["started_at"]),
        ("Ended", row["ended_at"]),
        ("Arguments", shlex.join(queries.arguments(details) or ())),
        ("Labels", ", ".join(job.labels)),
        ("Run folder", job.run_dir),
        ("Log", job.stdout_path),
        ("Error log", job.stderr_path),
        ("Spec", papers.get("spec")),
        ("Commit", f"{commit[:12]}{dirty}" if commit else None),
        ("Token", job.token),
        ("Stale since", row["stale_since"]),
    ]
    for name, value in fields:
        output.field(name, value)
    if len(details.attempts) > 1:
        click.echo("\nAttempts:")
        rows = [views.attempt_row(attempt) for attempt in details.attempts]
        output.items("attempts", rows, views.ATTEMPT_COLUMNS, "table")
    if chain.links:
        click.echo("\nChain:")
        rows = [views.link_row(link) for link in chain.links]
        output.items("chain", rows, views.CHAIN_COLUMNS, "table")
    efficiency = list(card.lines(told))
    if efficiency:
        click.echo("\n" + "\n".join(map(escaping.one_line, efficiency)))
    click.echo("\nHistory:")
    for event in details.events:
        click.echo(
            f"  {output.cell(event.at)}  {event.source:<10} {escaping.one_line(event.detail)}"
        )


def _state(job: jobs.Job) -> str:
    raw = "" if job.raw_state in (None, str(job.state)) else f" (Slurm: {job.raw_state})"
    return f"{job.state}{raw}"


def _exit(job: jobs.Job) -> str | None:
    if job.exit_code is None:
        return None
    told = diagnosis.explain_exit(job)
    code = f"{job.exit_code}:{job.exit_signal or 0}"
    return f"{code} ({told})" if told else code


def _cause(job: jobs.Job) -> str | None:
    if job.cause is None:
        return None
    return f"{job.cause} (orchestrator explain {job.job_id or f'@{job.row}'})"


def _nodes(job: jobs.Job) -> str | None:
    if job.nodes is None:
        return None
    return f"{job.nodes} ({job.node_list})" if job.node_list else str(job.nodes)
