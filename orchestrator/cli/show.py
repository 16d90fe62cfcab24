"""orchestrator show: one job or job array."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column, job_tables, terminal
from orchestrator.controller.prune import marks
from orchestrator.controller.recovery import chains
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.session import contexts, queries, selection
from orchestrator.controller.trackers import links as tracker_links
from orchestrator.controller.usage import job_efficiency
from orchestrator.jobs import naming
from orchestrator.rows import efficiency_rows, job_facts, job_rows, row_values
from orchestrator.text import escaping
from orchestrator.usage import efficiency, gpus

#: Failed tasks of an array that are shown; `status` lists all.
_MAX_FAILURES = 10
_FAILURE_COLUMNS = (
    Column("job_id"),
    Column("state"),
    Column("exit"),
    Column("ended_at", drop=5),
    Column("stdout_path", "parts"),
)
#: `show` prints these tables; the numbers of their columns do not overlap.
_TABLES = (*job_tables.ATTEMPT_COLUMNS, *job_tables.CHAIN_COLUMNS, *_FAILURE_COLUMNS)
_BAR_CHARACTERS = 20


@commands.command(
    "show",
    "orchestrator show 123",
    "orchestrator show digits-ddp --script",
    "orchestrator show 123 --code",
    "orchestrator show 123 --environment",
    table=_TABLES,
    changes="nothing",
    prints=("job", "array", "environment"),
)
def show(
    context: contexts.Context,
    reference: str = argument(metavar="JOB", shell_complete=options.complete("job_references")),
    script: bool = option("--script", "Print only the submitted script."),
    spec: bool = option("--spec", "Print only the spec, as JSON."),
    diff: bool = option("--diff", "Print only the uncommitted changes at submission."),
    code: bool = option(
        "--code",
        "Print only the code that it ran: commit, branch, snapshot and uncommitted changes.",
    ),
    environment: bool = option(
        "--environment",
        "Print only what the newest attempt ran with: Python and its packages, PyTorch, CUDA, "
        "NCCL, driver, GPUs, container image, modules and variables. JSON has all attempts.",
    ),
    refresh: bool | None = options.refresh,
    form: str | None = options.optional_form,
) -> None:
    """Show the details of a job.

    These are its state and the reason, attempts, efficiency, history and provenance. For a job
    array: the number of tasks in each state, and the tasks that failed first.
    """
    plain = {"--script": script, "--spec": spec, "--diff": diff, "--code": code}
    options.refuse_format(form, plain)
    on_demand.refresh(context, refresh)
    tasks = selection.jobs_of(context, reference)
    details = queries.details(context, tasks[0])
    provenance = json.loads(details.submission.provenance)
    pruned = marks.note(context, tasks[0])
    if pruned and (script or spec or diff):
        output.note(f"Note: {pruned}; this is the copy in the database.")
    if script:
        terminal.print_exactly(details.submission.script)
    elif spec:
        terminal.print_exactly(details.submission.spec + "\n")
    elif diff:
        terminal.print_exactly(provenance.get("git_diff") or "")
    elif code:
        _show_code(context, details, provenance)
    elif environment:
        _show_environment(context, tasks, provenance, form or "table")
    elif form in ("tsv", "csv"):
        job_tables.print_jobs(tasks, context.clock.now(), form)
    elif len(tasks) > 1:
        _show_array(tasks, provenance, form or "table", context.clock.now())
    else:
        _show_job(context, details, provenance, form or "table", may_ask=refresh is not False)


def _show_code(
    context: contexts.Context, details: queries.Details, provenance: Mapping[str, Any]
) -> None:
    from orchestrator import reproduction, specs
    from orchestrator.controller.code import store

    code = specs.from_json(details.submission.spec).code
    version = reproduction.CodeVersion.of(code, provenance)
    name = naming.name_of(details.job)
    if not version.identity:
        click.echo(f"The code of {name} is not recorded: no snapshot and no git.")
        return
    output.print_fields(
        [
            ("Commit", version.commit),
            ("Branch", version.branch),
            ("Snapshot", version.tree),
            ("Content", version.tree and store.of(context).summary(version.tree)),
            ("Root", code.root),
            ("Folder", code.folder if code.folder != "." else None),
            ("Submitted in", provenance.get("folder")),
        ],
        14,
    )
    if version.diff:
        click.echo("\nUncommitted changes:")
        click.echo(version.diff, nl=not version.diff.endswith("\n"))
    if version.is_diff_cut:
        output.note("The changes are cut after 1 MiB.")
    status = str(provenance.get("git_status") or "").splitlines()
    if version.tree is None and any(line.startswith("??") for line in status):
        output.note("There were untracked files, whose content is not recorded.")


def _show_environment(
    context: contexts.Context,
    tasks: Sequence[jobs.Job],
    provenance: Mapping[str, Any],
    form: str,
) -> None:
    from orchestrator.cli.output import environment_tables
    from orchestrator.controller.environments import attempts
    from orchestrator.rows import environment_rows

    shown = tasks[:1] if form == "table" else tasks
    known = [(job, attempts.of_job(context, job)) for job in shown]
    if not any(of_job for _, of_job in known):
        raise errors.NotFoundError(
            f"no environment of {naming.name_of(tasks[0])} is recorded: its script records it when "
            "the job has started, unless an older version of orchestrator made the script"
        )
    image = provenance.get("container")
    if form == "table":
        others = attempts.others(context, tasks)
        environment_tables.print_environment(tasks[0], known[0][1], image, others)
    elif output.is_json(form):
        rows = [
            environment_rows.environment_row(job, each, image)
            for job, of_job in known
            for each in of_job
        ]
        output.print_rows("environment", rows, (), form)
    else:
        values = [
            row
            for job, of_job in known
            for each in of_job[-1:]
            for row in environment_rows.value_rows(job, each)
        ]
        output.print_rows("environment", values, environment_rows.VALUE_COLUMNS, form)


def _show_array(
    tasks: Sequence[jobs.Job], provenance: Mapping[str, object], form: str, now: datetime.datetime
) -> None:
    first = tasks[0]
    succeeded = (jobs.JobState.COMPLETED, jobs.JobState.NOT_SUBMITTED)
    failed = [job for job in tasks if job.state in jobs.TERMINAL.difference(succeeded)]
    failed.sort(key=lambda job: (job.ended_at is None, job.ended_at, job.row))
    failures = [
        {
            **row_values.fields_of(job, ("job_id", "state", "reason")),
            "exit": job_rows.exit_text(job.exit_code, job.exit_signal),
            **row_values.fields_of(job, ("ended_at", "stdout_path")),
        }
        for job in failed[:_MAX_FAILURES]
    ]
    if output.is_json(form):
        names = ("cluster", "partition", "account", "qos", "run_dir", "token")
        record = {
            **row_values.fields_of(first, ("array_job_id", "name")),
            "tasks": len(tasks),
            "states": dict(collections.Counter(job.state for job in tasks).most_common()),
            "first_failures": failures,
            **row_values.fields_of(first, names),
            "provenance": provenance,
        }
        output.print_rows("array", [record], (), form)
        return
    output.print_fields(
        [
            ("Array", f"{first.array_job_id or '-'} (@{first.row}-{tasks[-1].row})"),
            ("Name", first.name),
            ("Tasks", f"{len(tasks)}, {naming.names_of(tasks)}"),
            *job_facts.named(first, job_facts.SITE),
            ("Labels", ", ".join(first.labels)),
            ("Run folder", first.run_dir),
            ("Spec", provenance.get("spec")),
            ("Token", first.token),
        ]
    )
    click.echo("\nStates:")
    job_tables.print_job_rows(job_rows.folded_rows(tasks, now), "table")
    if failures:
        click.echo("\nFirst failures:")
        output.print_rows("failures", failures, _FAILURE_COLUMNS, "table")


def _show_job(
    context: contexts.Context,
    details: queries.Details,
    provenance: Mapping[str, object],
    form: str,
    *,
    may_ask: bool,
) -> None:
    job = details.job
    efficiency, gpus = job_efficiency.of(context, details, may_ask=may_ask)
    chain = chains.chain_of(context, job)
    attempts = [job_rows.attempt_row(attempt) for attempt in details.attempts]
    links = [job_rows.link_row(link) for link in chain]
    row = job_rows.job_row(job, context.clock.now())
    row["arguments"] = queries.arguments(details)
    is_planned = bool(links) and links[-1]["outcome"] == "planned"
    row["next_start_at"] = links[-1]["due_at"] if is_planned else None
    pages = tracker_links.of_job(context, details)
    if form != "table":
        row |= {
            "efficiency": None if efficiency is None else dataclasses.asdict(efficiency),
            "gpus_used": [dataclasses.asdict(gpu) for gpu in gpus],
            "continued_by": next((each.job.row for each in chain if each.job.row > job.row), None),
            "chain": links,
            "attempts": attempts,
            "events": [job_rows.event_row(event) for event in details.events],
            "run_pages": pages,
            "provenance": provenance,
        }
        output.print_rows("job", [row], job_tables.JOB_COLUMNS, form)
        return
    output.print_fields(job_facts.facts(job, row, provenance, marks.note(context, job)))
    output.print_fields(("Run page", address) for address in pages.values())
    if len(attempts) > 1:
        click.echo("\nAttempts:")
        output.print_rows("attempts", attempts, job_tables.ATTEMPT_COLUMNS, "table")
    if links:
        click.echo("\nChain:")
        output.print_rows("chain", links, job_tables.CHAIN_COLUMNS, "table")
    if efficiency is not None:
        click.echo("\nEfficiency:")
        for line in efficiency_lines(efficiency, gpus):
            click.echo(f"  {escaping.one_line(line)}")
    click.echo("\nHistory:")
    for event in details.events:
        detail = escaping.one_line(event.detail)
        click.echo(f"  {row_values.cell(event.at)}  {event.source:<10} {detail}")


def efficiency_lines(
    used: efficiency.Efficiency, used_gpus: Sequence[gpus.GpuUsage]
) -> Iterator[str]:
    """Yield what a job used of what it was allocated, with bars."""
    for use in efficiency_rows.uses(used, used_gpus):
        yield _bar(use)
    for note in used.notes:
        yield f"Note: {note}"
    for missing in used.unknown:
        yield f"Unknown: {missing}"


def _bar(use: efficiency_rows.Use) -> str:
    if use.share is None:
        return f"{use.name:<14} {'':{_BAR_CHARACTERS + 7}} {use.text}"
    filled = min(_BAR_CHARACTERS, round(use.share * _BAR_CHARACTERS))
    return f"{use.name:<14} [{'|' * filled:<{_BAR_CHARACTERS}}{use.share * 100:4.0f}%] {use.text}"
