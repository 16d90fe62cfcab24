"""orchestrator show: one job or job array."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from orchestrator import errors, jobs
from orchestrator.cli import commands, options, output, session
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column, job_rows, terminal
from orchestrator.controller.prune import marks
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts, queries
from orchestrator.controller.usage import job_efficiency
from orchestrator.diagnosis import exit_codes, pending_reasons
from orchestrator.jobs import naming
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
_TABLES = (*job_rows.ATTEMPT_COLUMNS, *job_rows.CHAIN_COLUMNS, *_FAILURE_COLUMNS)
_BAR_CHARACTERS = 20
#: Label -> field of a job.
_SITE = {"Cluster": "cluster", "Partition": "partition", "Account": "account", "QOS": "qos"}
_TIMES = {"Submitted": "submitted_at", "Started": "started_at", "Ended": "ended_at"}
_PATHS = {"Run folder": "run_dir", "Log": "stdout_path", "Error log": "stderr_path"}


@commands.command(
    "show",
    "orchestrator show 123",
    "orchestrator show digits-ddp --script",
    "orchestrator show 123 --code",
    "orchestrator show 123 --environment",
    table=_TABLES,
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
    session.refresh(context, refresh)
    tasks = options.jobs_of(context, reference)
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
        job_rows.print_jobs(tasks, context.clock.now(), form)
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
    from orchestrator.cli.output import environment_rows
    from orchestrator.controller.environments import attempts

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
        environment_rows.print_environment(tasks[0], known[0][1], image, others)
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
            **output.fields_of(job, ("job_id", "state", "reason")),
            "exit": job_rows.exit_text(job.exit_code, job.exit_signal),
            **output.fields_of(job, ("ended_at", "stdout_path")),
        }
        for job in failed[:_MAX_FAILURES]
    ]
    if output.is_json(form):
        names = ("cluster", "partition", "account", "qos", "run_dir", "token")
        record = {
            **output.fields_of(first, ("array_job_id", "name")),
            "tasks": len(tasks),
            "states": dict(collections.Counter(job.state for job in tasks).most_common()),
            "first_failures": failures,
            **output.fields_of(first, names),
            "provenance": provenance,
        }
        output.print_rows("array", [record], (), form)
        return
    output.print_fields(
        [
            ("Array", f"{first.array_job_id or '-'} (@{first.row}-{tasks[-1].row})"),
            ("Name", first.name),
            ("Tasks", f"{len(tasks)}, {naming.names_of(tasks)}"),
            *_named(first, _SITE),
            ("Labels", ", ".join(first.labels)),
            ("Run folder", first.run_dir),
            ("Spec", provenance.get("spec")),
            ("Token", first.token),
        ]
    )
    click.echo("\nStates:")
    job_rows.print_job_rows(job_rows.folded_rows(tasks, now), "table")
    if failures:
        click.echo("\nFirst failures:")
        output.print_rows("failures", failures, _FAILURE_COLUMNS, "table")


def _named(job: jobs.Job, fields: Mapping[str, str]) -> list[tuple[str, object]]:
    return [(name, getattr(job, field)) for name, field in fields.items()]


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
    if form != "table":
        row |= {
            "efficiency": None if efficiency is None else dataclasses.asdict(efficiency),
            "gpus_used": [dataclasses.asdict(gpu) for gpu in gpus],
            "continued_by": next((each.job.row for each in chain if each.job.row > job.row), None),
            "chain": links,
            "attempts": attempts,
            "events": [job_rows.event_row(event) for event in details.events],
            "provenance": provenance,
        }
        output.print_rows("job", [row], job_rows.JOB_COLUMNS, form)
        return
    output.print_fields(_fields(job, row, provenance, marks.note(context, job)))
    if len(attempts) > 1:
        click.echo("\nAttempts:")
        output.print_rows("attempts", attempts, job_rows.ATTEMPT_COLUMNS, "table")
    if links:
        click.echo("\nChain:")
        output.print_rows("chain", links, job_rows.CHAIN_COLUMNS, "table")
    if efficiency is not None:
        click.echo("\nEfficiency:")
        for line in efficiency_lines(efficiency, gpus):
            click.echo(f"  {escaping.one_line(line)}")
    click.echo("\nHistory:")
    for event in details.events:
        detail = escaping.one_line(event.detail)
        click.echo(f"  {output.cell(event.at)}  {event.source:<10} {detail}")


def _fields(
    job: jobs.Job, row: output.Row, provenance: Mapping[str, object], pruned: str
) -> Iterator[tuple[str, object]]:
    yield "Job", f"{job.job_id or '-'} (@{job.row})"
    yield "Name", job.name
    raw = "" if job.raw_state in (None, job.state) else f" (Slurm: {job.raw_state})"
    yield "State", f"{job.state}{raw}"
    yield "Reason", pending_reasons.reason_sentence(job)
    yield "Next try", row["resend_at"]
    yield "Next start", row["next_start_at"]
    for alert in job.current_alerts:
        yield "Alert", f"{alert.rule}: {alert.detail}"
    code = job_rows.exit_text(job.exit_code, job.exit_signal)
    known = exit_codes.meaning(job)
    yield "Exit code", f"{code} ({known[1]})" if code and known else code
    if job.cause is not None:
        yield "Cause", f"{job.cause} (see `orchestrator explain {naming.name_of(job)}`)"
    yield from _named(job, _SITE)
    yield "Nodes", f"{job.nodes} ({job.node_list})" if job.nodes and job.node_list else job.nodes
    yield "GPUs", job.gpus
    elapsed = output.elapsed(row["elapsed_seconds"])
    limit = output.elapsed(job.time_limit_seconds)
    yield "Time", f"{elapsed} of {limit}" if elapsed and limit else elapsed or limit
    yield from _named(job, _TIMES)
    yield "Arguments", row["arguments"] and shlex.join(row["arguments"])
    yield "Labels", ", ".join(job.labels)
    yield from _named(job, _PATHS)
    yield "Note", pruned
    yield "Spec", provenance.get("spec")
    commit = str(provenance.get("git_commit") or "")
    branch = f" ({provenance['git_branch']})" if provenance.get("git_branch") else ""
    changes = " with uncommitted changes (show --code)" if provenance.get("git_dirty") else ""
    yield "Commit", f"{commit[:12]}{branch}{changes}" if commit else None
    yield "Token", job.token
    yield "Stale since", job.stale_since


def efficiency_lines(
    used: efficiency.Efficiency, used_gpus: Sequence[gpus.GpuUsage]
) -> Iterator[str]:
    """Yield what a job used of what it was allocated, with bars."""
    limit = output.elapsed(used.time_limit_seconds)
    if used.elapsed_seconds is not None:
        elapsed = output.elapsed(used.elapsed_seconds)
        yield _bar("Time", used.time_share, f"{elapsed} of {limit}" if limit else elapsed)
    if used.cpu_seconds is not None:
        text = output.elapsed(used.cpu_seconds)
        if used.cpus is not None and used.elapsed_seconds is not None:
            available = output.elapsed(used.cpus * used.elapsed_seconds)
            text += f" of {available} ({output.count(used.cpus, 'CPU')})"
        yield _bar("CPU", used.cpu_share, text)
    if used.memory_peak_bytes is not None:
        peak = efficiency.amount(used.memory_peak_bytes)
        text = f"{peak} peak, {used.memory_is_of}"
        if used.memory_asked_bytes is not None:
            text = f"{peak} of {efficiency.amount(used.memory_asked_bytes)} {used.memory_is_of}"
        yield _bar("Memory", used.memory_share, text)
    for gpu in used_gpus:
        use = gpu.utilization_percent
        share = None if use is None else use.mean / 100.0
        yield _bar(f"GPU {gpu.host}:{gpu.index}", share, _gpu_text(gpu))
    if used.energy_joules is not None:
        yield _bar("Energy", None, f"{used.energy_joules / 3.6e6:.3f} kWh")
    for note in used.notes:
        yield f"Note: {note}"
    for missing in used.unknown:
        yield f"Unknown: {missing}"


def _bar(name: str, share: float | None, text: str) -> str:
    if share is None:
        return f"{name:<14} {'':{_BAR_CHARACTERS + 7}} {text}"
    filled = min(_BAR_CHARACTERS, round(share * _BAR_CHARACTERS))
    return f"{name:<14} [{'|' * filled:<{_BAR_CHARACTERS}}{share * 100:4.0f}%] {text}"


def _gpu_text(gpu: gpus.GpuUsage) -> str:
    parts = []
    if gpu.utilization_percent is None:
        parts.append("utilization unknown")
    if gpu.memory_used_mib is not None:
        total = "" if gpu.memory_total_mib is None else f" of {gpu.memory_total_mib / 1024:.1f}"
        parts.append(f"memory {gpu.memory_used_mib.max / 1024:.1f}{total} GiB")
    if gpu.power_watts is not None:
        parts.append(f"{gpu.power_watts.mean:.0f} W")
    if gpu.idle_share is not None:
        parts.append(f"idle {gpu.idle_share * 100:.0f} %")
    return ", ".join(parts)
