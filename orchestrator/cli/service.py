"""orchestrator tick and serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator import errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import option
from orchestrator.cli.output import Column
from orchestrator.rows import row_values
from orchestrator.text import formats

if TYPE_CHECKING:
    from orchestrator.controller.service import controller_process
    from orchestrator.controller.session import contexts

_HEALTH_COLUMNS = (
    Column("healthy"),
    Column("command", drop=3),
    Column("host", "name"),
    Column("pid", drop=4),
    Column("since", drop=1),
    Column("last_pass_at"),
    Column("next_pass_at", drop=2),
)


@commands.command("tick", "orchestrator tick", changes="other")
def tick(
    ctx: click.Context,
    quiet: bool = option(
        "--quiet",
        "Print only problems, and exit with 0 if another controller is running. For cron.",
    ),
    trust_clock: bool = option(
        "--trust-clock", "Confirm that this host's clock is right after it jumped."
    ),
) -> None:
    """Run one controller pass.

    A pass refreshes job states, reads logs, submits what is due, and sends notifications. Start it
    regularly with cron, scrontab or a systemd timer (see `schedule install`); `serve` runs passes
    in a loop.

    Exit code 6 if another controller is running, 5 or 1 if a step failed; the other steps still
    run.
    """
    from orchestrator.controller.service import controller_process, leases, passes
    from orchestrator.controller.session import clock_check

    context = session.open_context(ctx, quiet=quiet)
    has_clock_message = False

    def log(line: controller_process.LogLine) -> None:
        nonlocal has_clock_message
        has_clock_message = has_clock_message or line.event == "clock"
        if line.level != "info" or not quiet:
            output.note(f"{line.step}: {line.text}" if line.step else line.text)

    if trust_clock:
        at = clock_check.trust(context).astimezone()
        output.note(f"This host's clock is trusted: {at:%Y-%m-%d %H:%M:%S}")
    try:
        outcomes = controller_process.tick(context, log)
    except leases.HeldError:
        if quiet:
            return
        raise
    except passes.Stopped:
        raise KeyboardInterrupt from None
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        names = ", ".join(outcome.step for outcome in failed)
        error = errors.OrchestratorError(f"{len(failed)} of {len(outcomes)} steps failed: {names}")
        error.exit_code = max(outcome.exit_code for outcome in failed)
        raise error
    if not quiet and not has_clock_message and not any(outcome.done for outcome in outcomes):
        output.note("Nothing to do.")


@commands.command(
    "serve",
    "orchestrator serve",
    "orchestrator serve --status",
    changes="other",
    when=lambda given: not given["show_status"],
    prints=("controllers",),
)
def serve(
    ctx: click.Context,
    interval: float | None = option(
        "--interval",
        "Time between passes. Default: the profile's serve_interval_seconds, 60.",
        value_types.seconds(least=1),
        metavar="SECONDS",
    ),
    log_format: str = option(
        "--log-format",
        "json: one object per line with time, level, event, step, job and text.",
        click.Choice(["text", "json"]),
        default="text",
    ),
    stand_by: bool = option("--wait", "Stand by while another controller runs."),
    show_status: bool = option("--status", "Show the state of the controller."),
    form: str | None = options.optional_form,
) -> None:
    """Run the controller until it is stopped.

    It runs the passes of `tick` in a loop until SIGTERM or Ctrl-C, and finishes the current step
    first. While Slurm or the database is down, it retries less and less often. Only one controller
    runs at a time: exit code 6 if another one is running or takes over.

    With --status, exit code 0 if a controller is running without problems, otherwise 1.
    """
    context = session.open_context(ctx, quiet=True)
    if show_status:
        _print_health(context, form or output.default_format())
        return
    if form is not None:
        raise click.UsageError("--format and --json require --status; use --log-format for the log")
    from orchestrator.controller.service import controller_process

    def log(line: controller_process.LogLine) -> None:
        click.echo(_json_line(line) if log_format == "json" else _text_line(line))

    controller_process.serve(
        context,
        log,
        interval_seconds=interval or context.profile.serve_interval_seconds,
        stand_by=stand_by,
    )


def _json_line(line: controller_process.LogLine) -> str:
    names = ("level", "event", "step", "job", "text")
    return formats.json_text({"time": line.at.isoformat(), **row_values.fields_of(line, names)})


def _text_line(line: controller_process.LogLine) -> str:
    at = line.at.astimezone().isoformat(timespec="seconds")
    level = "" if line.level == "info" else f"{line.level}: "
    step = f"{line.step}: " if line.step else ""
    return f"{at} {level}{step}{' '.join(line.text.split())}"


def _print_health(context: contexts.Context, form: str) -> None:
    from orchestrator.controller.service import health

    state = health.examine(context.store, context.configuration.state_dir, context.clock.now())
    lease, newest = state.lease, state.newest
    holder = None if lease is None else lease.holder
    row: dict[str, object] = {
        "healthy": not state.problems,
        "command": holder and lease and lease.command,
        **row_values.fields_of(holder, ("host", "pid")),
        **row_values.fields_of(lease, ("since", "renewed_at", "fence")),
        **row_values.fields_of(
            newest, ("last_pass_at", "took_seconds", "next_pass_at", "failing_since")
        ),
        "steps": {} if newest is None else newest.steps,
        "problems": state.problems,
    }
    output.print_rows("controllers", [row], _HEALTH_COLUMNS, form)
    if state.problems:
        raise errors.OrchestratorError("\n".join(state.problems))
