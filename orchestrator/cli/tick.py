"""orchestrator tick."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import output, session


@click.command(short_help="Do once what the controller does again and again.")
@click.option(
    "--quiet",
    is_flag=True,
    help="Print only what went wrong, and end with 0 where another controller acts: for cron.",
)
@click.option(
    "--trust-clock",
    is_flag=True,
    help="Confirm that this host's clock is right, after it leapt.",
)
@click.pass_context
def command(ctx: click.Context, quiet: bool, trust_clock: bool) -> None:
    """Do one pass: refresh, read logs, send what is due or waits, and tell what it did.

    For cron, scrontab or a systemd timer; `serve` does the same in a loop. One controller acts at a
    time: exit code 6 where another does. Exit code 5 or 1 when a step failed; the others ran.

    \b
    Example:
      orchestrator tick
    """
    from orchestrator.controller.service import leases, passes, serve
    from orchestrator.controller.session import clock_check

    context = session.open_context(ctx, talks=not quiet)

    told_of_clock = False

    def log(line: serve.LogLine) -> None:
        nonlocal told_of_clock
        told_of_clock = told_of_clock or line.event == "clock"
        if line.level != "info" or not quiet:
            step = f"{line.step}: " if line.step else ""
            output.say(f"{step}{line.text}")

    if trust_clock:
        at = clock_check.trust(context).astimezone()
        output.say(f"The clock of this host is trusted: {at:%Y-%m-%d %H:%M:%S}")
    try:
        outcomes = serve.tick(context, log, lease_seconds=context.profile.lease_seconds)
    except leases.HeldError:
        if quiet:
            return
        raise
    except passes.Stopped:
        raise KeyboardInterrupt from None
    failed = [one for one in outcomes if one.error is not None]
    if failed:
        error = errors.OrchestratorError(
            f"{len(failed)} of {len(outcomes)} steps failed: "
            f"{', '.join(one.step for one in failed)}"
        )
        error.exit_code = max(one.exit_code for one in failed)
        raise error
    if not quiet and not told_of_clock and not any(one.done for one in outcomes):
        output.say("Nothing was to be done.")
