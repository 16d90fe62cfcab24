"""orchestrator serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator import errors
from orchestrator.cli import output, session, verbs
from orchestrator.text import formats

if TYPE_CHECKING:
    from orchestrator.controller.service import serve
    from orchestrator.controller.session import contexts


@click.command(short_help="Do what is due, again and again, until it is ended.")
@click.option(
    "--interval",
    type=verbs.Seconds(min=1),
    metavar="SECONDS",
    help="From the end of a pass to the next; default: the profile's serve_interval_seconds, 60.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: an object a line, with time, level, event, step, job and text.",
)
@click.option("--wait", "stand_by", is_flag=True, help="Stand by while another controller acts.")
@click.option("--status", "status", is_flag=True, help="Only tell how the controller is.")
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    interval: float | None,
    log_format: str,
    stand_by: bool,
    status: bool,
    format_: str | None,
    as_json: bool,
) -> None:
    """Do what `tick` does, again and again, until SIGTERM or Ctrl-C; what was begun is done first.

    One controller acts at a time: exit code 6 where another does, or took over. Where Slurm or the
    database is away it goes on, more and more slowly. With --status exit code 0 when a controller
    acts and is well, 1 when not.

    \b
    Examples:
      orchestrator serve
      orchestrator serve --status
    """
    context = session.open_context(ctx, talks=False)
    if status:
        _tell_health(context, output.chosen(format_, as_json))
        return
    if format_ is not None or as_json:
        raise click.UsageError("--format and --json belong to --status; the log has --log-format")
    from orchestrator.controller.service import serve

    def log(line: serve.LogLine) -> None:
        click.echo(_as_json(line) if log_format == "json" else _as_text(line))

    serve.serve(
        context,
        log,
        interval_seconds=interval or context.profile.serve_interval_seconds,
        lease_seconds=context.profile.lease_seconds,
        stand_by=stand_by,
    )


def _as_json(line: serve.LogLine) -> str:
    fields = {
        "time": line.at.isoformat(),
        "level": line.level,
        "event": line.event,
        "step": line.step,
        "job": line.job,
        "text": line.text,
    }
    return formats.json_text(fields)


def _as_text(line: serve.LogLine) -> str:
    at = line.at.astimezone().isoformat(timespec="seconds")
    level = "" if line.level == "info" else f"{line.level}: "
    step = f"{line.step}: " if line.step else ""
    return f"{at} {level}{step}{' '.join(line.text.split())}"


def _tell_health(context: contexts.Context, chosen: str) -> None:
    from orchestrator.controller.service import health

    found = health.examine(context.store, context.configuration.state_dir, context.clock.now())
    lease, newest = found.lease, found.newest
    holder = None if lease is None else lease.holder
    row: dict[str, object] = {
        "healthy": not found.problems,
        "command": None if holder is None or lease is None else lease.command,
        "host": None if holder is None else holder.host,
        "pid": None if holder is None else holder.pid,
        "since": None if lease is None else lease.since,
        "renewed_at": None if lease is None else lease.renewed_at,
        "fence": None if lease is None else lease.fence,
        "last_pass_at": None if newest is None else newest.last_pass_at,
        "took_seconds": None if newest is None else newest.took_seconds,
        "next_pass_at": None if newest is None else newest.next_pass_at,
        "failing_since": None if newest is None else newest.failing_since,
        "steps": {} if newest is None else newest.steps,
        "problems": found.problems,
    }
    columns = ["healthy", "command", "host", "pid", "since", "last_pass_at", "next_pass_at"]
    output.items("controllers", [row], columns, chosen)
    if found.problems:
        raise errors.OrchestratorError("\n".join(found.problems))
