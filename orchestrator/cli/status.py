"""orchestrator status and refresh."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import sys
import time
from typing import Any

from orchestrator import errors, jobs
from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import job_tables, terminal
from orchestrator.cli.remote import all_hosts
from orchestrator.controller.refresh import on_demand
from orchestrator.controller.session import clock_check, contexts, listing
from orchestrator.rows import job_rows

#: Seconds between two displays of --watch.
_WATCH_SECONDS = 2


@commands.command(
    "status",
    "orchestrator status",
    "orchestrator status -t RUNNING,PENDING --json",
    "orchestrator status --all-hosts",
    table=job_tables.JOB_COLUMNS,
    changes="nothing",
    prints=("jobs", "host_jobs"),
    kind=all_hosts.StatusCommand,
)
def status(
    context: contexts.Context,
    references: tuple[str, ...] = options.references,
    job_states: tuple[jobs.JobState, ...] | None = options.job_states,
    job_filter: options.JobFilter = options.job_filter,
    sweeps: tuple[str, ...] = options.of_sweeps,
    since: datetime.datetime | None = option(
        "-S --since",
        "Only jobs submitted since: 2026-11-20, 10:05, yesterday, now-2hours.",
        value_types.time,
    ),
    all_: bool = option("-a --all", "Also jobs that ended more than a day ago."),
    limit: int = options.limit,
    expand: bool = option("-r --expand", "One row for each task of an array."),
    watch: bool = option(
        "--watch",
        "Print again every 2 s until Ctrl-C. It reads only the database; with --refresh, Slurm is "
        "queried now, and later as without --watch.",
    ),
    refresh: bool | None = options.refresh,
    on_all_hosts: bool = option(
        "--all-hosts",
        "Jobs of this computer and of all hosts in the configuration, [hosts.NAME]. --limit is for "
        "each host.",
    ),
    form: str = options.form,
) -> int:
    """List jobs and their states.

    By default these are live jobs and jobs that ended within the last day, newest first. A table
    shows array tasks with the same state in one row: 41_[0-499]. Slurm is asked only if the stored
    state is older than the profile's poll_floor_seconds.
    --all-hosts asks all hosts at the same time, without prompts for passwords. A host that does not
    answer within 20 s is named on stderr, the others are shown, and the exit code is 255.
    """
    is_folded = form == "table" and not expand
    gathering = None
    if on_all_hosts:
        options.refuse(
            {
                "--all-hosts: not with jobs or sweeps, which are of one host": references or sweeps,
                "--all-hosts: not with --watch": watch,
            }
        )
        gathering = all_hosts.start(context)
    shown = listing.Filter(
        references=references,
        states=job_states or (),
        sweeps=sweeps,
        since=since,
        all=all_,
        **vars(job_filter),
    )
    query = shown.query(context, limit)
    if watch and refresh is None:
        refresh = False
    while True:
        fresh = None
        # Nothing can be stored while a row is damaged, but readable rows are still shown.
        with contextlib.suppress(errors.DamagedRowError):
            fresh = on_demand.refresh(context, refresh)
        error = ""
        if refresh and fresh is not None and fresh.failing_since is not None:
            error = fresh.last_error or ""
        if gathering is not None:
            here = _read_jobs(context, (), query, is_folded=is_folded, error=error)
            return all_hosts.print_jobs(
                gathering, here.rows, here.messages, limit, form, is_folded=is_folded
            )
        is_empty = not _print_jobs(
            context,
            references,
            query,
            form,
            is_folded=is_folded,
            is_watched=watch,
            is_asked=refresh is not False,
            error=error,
        )
        if is_empty and form == "table" and sys.stdout.isatty():
            output.note(_next_step(context, is_filtered=shown.has_conditions))
        if not watch:
            return 0
        refresh = None if refresh else refresh
        time.sleep(_WATCH_SECONDS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Read:
    """The jobs of a list."""

    jobs: list[jobs.Job]
    rows: list[dict[str, Any]]
    #: how old the states are, and what is wrong
    staleness: str
    warnings: list[str]
    damage: list[errors.DamagedRowError]

    @property
    def messages(self) -> list[str]:
        return [*filter(None, [self.staleness, *self.warnings]), *map(str, self.damage[:1])]


def _read_jobs(
    context: contexts.Context,
    references: tuple[str, ...],
    query: jobs.JobQuery,
    *,
    is_folded: bool,
    error: str,
) -> _Read:
    """Return the jobs, and one row more than the limit, which shows whether there are more."""
    limit = None if references else query.limit
    # An array is folded as a whole: the limit then counts lines.
    one_more = dataclasses.replace(
        query, limit=None if limit is None else limit + 1, whole_arrays=is_folded
    )
    with context.store.reading() as work:
        listed = listing.read(context, references, one_more)
        doubt = clock_check.stored_doubt(work)
    now = context.clock.now()
    if is_folded:
        rows = job_rows.folded_rows(listed.jobs, now)
    else:
        rows = [job_rows.job_row(job, now) for job in listed.jobs]
    return _Read(
        jobs=listed.jobs,
        rows=rows,
        staleness=_staleness(listed.jobs, error or listed.slurm_error),
        warnings=[*filter(None, [doubt, _late_controller(context, now)])],
        damage=listed.damage,
    )


def _print_jobs(
    context: contexts.Context,
    references: tuple[str, ...],
    query: jobs.JobQuery,
    form: str,
    *,
    is_folded: bool,
    is_watched: bool,
    is_asked: bool,
    error: str,
) -> bool:
    """Print jobs and what is wrong; return whether there are any."""
    read = _read_jobs(context, references, query, is_folded=is_folded, error=error)
    if is_watched and form == "table" and output.is_drawable():
        terminal.clear()
    limit = None if references else query.limit
    job_tables.print_job_rows(read.rows[:limit], form)
    staleness = read.staleness
    if is_watched and not is_asked and not staleness:
        staleness = _not_asked(context, read.jobs, context.clock.now())
    for message in filter(None, [staleness, *read.warnings]):
        output.note(message)
    if limit is not None:
        output.note_limit(read.rows, limit)
    if read.damage:
        raise read.damage[0]
    return bool(read.rows)


def _next_step(context: contexts.Context, *, is_filtered: bool) -> str:
    """Return what to do if no job is listed."""
    from orchestrator.controller.submission import job_scripts

    with context.store.reading() as work:
        has_jobs = bool(work.jobs.find_rows(jobs.JobQuery(limit=1)))
    if has_jobs and is_filtered:
        return "No job matches."
    if has_jobs:
        return "No job is live or ended within the last day: `orchestrator status --all` lists all."
    first = "No jobs yet. Submit one: `orchestrator submit train.py`"
    profile = context.profile
    is_described = profile.partition or profile.account or profile.partitions
    if is_described or job_scripts.is_local(context.configuration, context.environ):
        return first
    return f"{first}. First draft a profile for this cluster: `orchestrator config init`"


def _staleness(matching: list[jobs.Job], error: str) -> str:
    """Return a message if states are not confirmed by Slurm, or ""."""
    reason = f"Slurm does not respond: {error.splitlines()[0]}" if error else ""
    stale = [(job.stale_since, job) for job in matching if job.stale_since is not None]
    if not stale:
        return reason
    local = {job.cluster for _, job in stale if job.scheduler == "local"}
    if local and not error:
        hosts = ", ".join(sorted(cluster.removeprefix("local:") for cluster in local))
        reason = f"jobs of {hosts} are updated only there: run `orchestrator status` there"
    since = min(at for at, _ in stale).astimezone().isoformat(timespec="seconds")
    return f"Stale since {since}: {reason or 'not confirmed by Slurm'}"


def _not_asked(context: contexts.Context, matching: list[jobs.Job], now: datetime.datetime) -> str:
    """Return a message if neither a controller nor a command keeps the states up to date, or ""."""
    live = {job.cluster for job in matching if not job.settled}
    with context.store.reading() as work:
        asked = [work.refreshes.get(cluster).last_good_squeue_at for cluster in sorted(live)]
    oldest = min((at for at in asked if at is not None), default=None)
    profile = context.profile
    late_seconds = profile.serve_interval_seconds + profile.poll_floor_seconds
    if oldest is None or (now - oldest).total_seconds() <= late_seconds:
        return ""
    at = oldest.astimezone().isoformat(timespec="seconds")
    return f"States are of {at}. `status --watch --refresh` keeps them up to date."


def _late_controller(context: contexts.Context, now: datetime.datetime) -> str:
    """Return a message if `serve` was not stopped but makes no passes, or ""."""
    state_dir = context.configuration.state_dir
    if not (state_dir / "controller.json").exists():
        return ""
    from orchestrator.controller.service import health

    newest = health.load(state_dir)
    is_serving = newest is not None and newest.command == "serve"
    late = health.late_message(newest, now) if is_serving else ""
    return late and f"{late} For details: `orchestrator serve --status`."


@commands.command("refresh", "orchestrator refresh", changes="nothing")
def refresh(context: contexts.Context) -> None:
    """Query Slurm about all live jobs now.

    Also reads their logs, and submits deferred jobs that are due. Runs squeue and sacct at
    most once. Exit code 5 if Slurm does not respond.
    """
    from orchestrator.controller.metrics import ingest
    from orchestrator.controller.resubmission import deferred_jobs

    with context.store.reading() as work:
        # Before the refresh, so that the log of a job that ends in it is read to its end.
        live = [job.row for job in work.jobs.find(jobs.JobQuery(live=True, limit=None))]
    fresh = deferred_jobs.refresh_and_send(context, floor_seconds=0)
    stored = ingest.ingest_rows(context, live)
    if fresh.busy:
        output.note("Another process is asking Slurm now; its result is used.")
    if fresh.failing_since is not None:
        since = fresh.failing_since.astimezone().isoformat(timespec="seconds")
        raise errors.SlurmError(f"Slurm has not responded since {since}: {fresh.last_error}")
    if fresh.sacct_error:
        output.note(f"Exit codes and times may be missing: {fresh.sacct_error}")
    output.note(f"{fresh.changed} jobs changed, {stored} metrics read")
