"""orchestrator status."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time

import click

from orchestrator import errors, jobs, slurm
from orchestrator.cli import completing, output, session, terminal, times, views
from orchestrator.controller.refresh import freshness
from orchestrator.controller.session import clock_check, contexts, queries


@click.command(short_help="List jobs and their states.")
@click.argument(
    "references", nargs=-1, metavar="[JOB...]", shell_complete=completing.job_references
)
@click.option("-t", "--state", "states", help="Only these states: RUNNING,PD,F as squeue has them.")
@click.option("-p", "--partition", "partitions", help="Only these partitions.")
@click.option("--name", "names", multiple=True, help="Only jobs of this name.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with this label.")
@click.option(
    "--sweep", "sweeps", multiple=True, help="Only jobs of sweeps of this name, or of @3."
)
@click.option("-S", "--since", help="Submitted since: 2026-11-20, 10:05, yesterday, now-2hours.")
@click.option("-a", "--all", "all_", is_flag=True, help="All jobs, however old.")
@output.limit_option
@click.option("-r", "--expand", is_flag=True, help="One row for each task of an array.")
@click.option(
    "--watch", is_flag=True, help="Show again and again, from the database, until Ctrl-C."
)
@session.refresh_options
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    references: tuple[str, ...],
    states: str | None,
    partitions: str | None,
    names: tuple[str, ...],
    labels: tuple[str, ...],
    sweeps: tuple[str, ...],
    since: str | None,
    all_: bool,
    limit: int,
    expand: bool,
    watch: bool,
    refresh_: bool | None,
    format_: str | None,
    as_json: bool,
) -> None:
    """List jobs and their states: the live ones and the last day's, newest first.

    In a table, tasks of an array that wait or ended alike are one row: 41_[0-499].
    Slurm is asked only when its last answer is older than the profile's poll_floor_seconds.

    \b
    Examples:
      orchestrator status
      orchestrator status -t RUNNING,PENDING --json
    """
    context = session.open_context(ctx)
    chosen = output.chosen(format_, as_json)
    narrowed = bool(references or states or partitions or names or labels or sweeps or since)
    now = context.clock.now()
    wanted = jobs.JobQuery(
        names=names,
        labels=labels,
        sweeps=tuple(word for word in sweeps if not word.startswith("@")),
        sweep_rows=_sweep_rows(context, sweeps),
        states=_states(states),
        partitions=_partitions(partitions),
        since=None if since is None else _since(since, now),
        live_or_since=None if all_ or narrowed else now - queries.RECENT,
        limit=limit,
    )
    while True:
        error = ""
        # Where a row is damaged nothing can be stored, and what can be read is shown all the same.
        with contextlib.suppress(errors.DamagedRowError):
            error = _refresh(context, refresh_, insist=bool(refresh_) and not watch)
        _show(context, references, wanted, chosen, expand=expand, clear=watch, error=error)
        if not watch:
            return
        time.sleep(2)


def _refresh(context: contexts.Context, refresh_: bool | None, *, insist: bool) -> str:
    """Ask Slurm where that is due; return why it did not answer who insisted."""
    if not insist and (refresh_ is False or freshness.nothing_is_due(context)):
        return ""
    # What asks Slurm takes as long to load as all the rest.
    from orchestrator.controller.resubmission import resend

    fresh = resend.refresh_or_warn(context, floor_seconds=0 if insist else None)
    return fresh.error if insist and fresh.failing_since is not None else ""


def _sweep_rows(context: contexts.Context, words: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of sweeps among these words; NotFoundError for a sweep there is not."""
    if not words:
        return ()
    from orchestrator.controller.sweeps import queries

    found = [queries.find(context, word) for word in words]
    return tuple(
        sweep.row for word, sweep in zip(words, found, strict=True) if word.startswith("@")
    )


def _show(
    context: contexts.Context,
    references: tuple[str, ...],
    wanted: jobs.JobQuery,
    chosen: str,
    *,
    expand: bool,
    clear: bool,
    error: str,
) -> None:
    named: list[int] = []
    if references:
        named = [job.row for word in references for job in session.jobs_of(context, word)]
        wanted = dataclasses.replace(wanted, rows=named, limit=None)
    folds = chosen == "table" and not expand
    # What is folded is folded whole: the limit is one of lines then.
    looked_for = dataclasses.replace(wanted, whole_arrays=True) if folds else wanted
    found, told, damage = queries.list_readable(context, looked_for)
    error = error or told
    places = {row: place for place, row in enumerate(named)}
    if references:
        found.sort(key=lambda job: places[job.row])
    now = context.clock.now()
    if clear and chosen == "table" and output.is_drawable():
        terminal.clear()
    if folds:
        rows = views.folded_lines(found, now)[: wanted.limit]
    else:
        plain = output.is_json(chosen)
        rows = [views.job_row(job, now) if plain else views.job_line(job, now) for job in found]
    output.items("jobs", rows, views.JOB_COLUMNS, chosen)
    stale = [job.stale_since for job in found if job.stale_since is not None]
    if stale:
        at = min(stale).astimezone().isoformat(timespec="seconds")
        why = "not confirmed by Slurm"
        if error:
            why = f"Slurm does not answer: {error.splitlines()[0]}"
        elif elsewhere := sorted({job.cluster for job in found if _is_elsewhere(job)}):
            hosts = ", ".join(cluster.removeprefix("local:") for cluster in elsewhere)
            why = f"only {hosts} can tell of its own jobs: ask there"
        context.reporter.info(f"Stale since {at}: {why}")
    elif error:
        context.reporter.info(f"Slurm does not answer: {error.splitlines()[0]}")
    with context.store.reading() as work:
        doubt = clock_check.stored_doubt(work)
    if doubt:
        context.reporter.info(doubt)
    if late := _late_controller(context, now):
        context.reporter.info(f"{late} `orchestrator serve --status` tells more.")
    if wanted.limit is not None and len(rows) >= wanted.limit:
        context.reporter.info(f"The newest {wanted.limit}; more with --limit.")
    if damage:
        raise damage[0]


def _late_controller(context: contexts.Context, now: datetime.datetime) -> str:
    """Return what to say of a `serve` that was not ended and is silent; "": nothing."""
    state_dir = context.configuration.state_dir
    if not (state_dir / "controller.json").exists():
        return ""
    from orchestrator.controller.service import health

    newest = health.load(state_dir)
    return (
        health.late_message(newest, now) if newest is not None and newest.command == "serve" else ""
    )


def _is_elsewhere(job: jobs.Job) -> bool:
    return job.stale_since is not None and job.scheduler == "local"


def _states(text: str | None) -> tuple[jobs.JobState, ...]:
    # `-t ""` is a mistake, such as a variable that is not set, and must not mean all.
    if text is None:
        return ()
    return tuple(_state(word) for word in text.split(","))


def _state(word: str) -> jobs.JobState:
    with contextlib.suppress(ValueError):
        return jobs.JobState(word.upper())
    state = slurm.parse_state(word)
    if state is jobs.JobState.UNKNOWN:
        known = ", ".join(jobs.JobState)
        raise click.BadParameter(
            f"{word!r} is no state; states are {known}", param_hint="'-t' / '--state'"
        )
    return state


def _partitions(text: str | None) -> tuple[str, ...]:
    names = () if text is None else tuple(text.split(","))
    if not all(names):
        raise click.BadParameter(
            f"{text!r} lacks the name of a partition", param_hint="'-p' / '--partition'"
        )
    return names


def _since(text: str, now: datetime.datetime) -> datetime.datetime:
    try:
        return times.since(text, now)
    except ValueError as exc:
        told = "write 2026-11-20, 2026-11-20T10:05, 10:05, yesterday, 3days or now-2hours"
        raise click.BadParameter(
            f"{text!r} is no time; {told}", param_hint="'-S' / '--since'"
        ) from exc
