"""orchestrator schedule install."""

from __future__ import annotations

import os
import shutil
import sys

import click

from orchestrator.cli import commands, output, session
from orchestrator.cli.commands import option
from orchestrator.cli.output import terminal


@commands.command(
    "install",
    "orchestrator schedule install --cron",
    "orchestrator schedule install --systemd --write",
    changes="other",
    when=lambda given: given["write"] or given["remove"],
)
def install(
    ctx: click.Context,
    cron: bool = option("--cron", "Use this user's crontab on this host."),
    scrontab: bool = option("--scrontab", "Use Slurm's crontab; each run is a job."),
    systemd: bool = option("--systemd", "Use a timer of the user's systemd."),
    write: bool = option("--write", "Install the entry instead of printing it."),
    remove: bool = option("--remove", "Remove the installed entry."),
) -> None:
    """Print or install an entry that runs `orchestrator tick` regularly.

    One entry on one host is enough. Several are safe: only one controller runs at a time. In your
    crontab only the lines between two markers are changed.
    """
    from orchestrator.controller.schedules import install as installation

    kinds = {"cron": cron, "scrontab": scrontab, "systemd": systemd}
    chosen = [kind for kind, is_chosen in kinds.items() if is_chosen]
    if len(chosen) != 1:
        raise click.UsageError("choose --cron, --scrontab or --systemd")
    if write and remove:
        raise click.UsageError("--write and --remove cannot be combined")
    variables = installation.ReadVariables(os.environ)
    # Errors in the configuration must show up now: nobody reads the output of a cron job.
    configuration = session.configuration_of(ctx, environ=variables)
    if not remove:
        installation.refuse_password(os.environ)
    driver = installation.driver(
        _program(), ctx.obj or {}, configuration, variables, session.current_folder()
    )
    if not write and not remove:
        terminal.print_exactly(installation.text(driver, chosen[0]))
        return
    for message in installation.install(driver, chosen[0], os.environ, remove=remove):
        output.note(message)


def _program() -> list[str]:
    """Return the command that starts this program from any folder."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        # -P: a module of the project must not replace one of Python.
        return [sys.executable, "-P", "-m", "orchestrator"]
    return [os.path.abspath(shutil.which(called) or called)]
