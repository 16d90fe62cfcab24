"""orchestrator schedule install."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from orchestrator.cli import output, settings, terminal
from orchestrator.controller.schedules import install

KINDS = ("cron", "scrontab", "systemd")


@click.command(short_help="Set up what runs `orchestrator tick` regularly.")
@click.option("--cron", "kind", flag_value="cron", help="The crontab of this user on this host.")
@click.option("--scrontab", "kind", flag_value="scrontab", help="Slurm's own; a job each time.")
@click.option("--systemd", "kind", flag_value="systemd", help="A timer of the user's systemd.")
@click.option("--write", is_flag=True, help="Install it; without, it is printed alone.")
@click.option("--remove", is_flag=True, help="Take out what --write has installed.")
@click.pass_context
def command(ctx: click.Context, kind: str | None, write: bool, remove: bool) -> None:
    """Print, or with --write install, what runs `orchestrator tick` regularly.

    One of them is enough, on one host; two do no harm, for only one controller acts at a time. Of
    your crontab only the lines between our two marks are changed.

    \\b
    Examples:
      orchestrator schedule install --cron
      orchestrator schedule install --systemd --write
    """
    if kind is None:
        raise click.UsageError("say --cron, --scrontab or --systemd")
    if write and remove:
        raise click.UsageError("--write and --remove exclude each other")
    # The configuration is read for its mistakes: nobody reads what a driver says.
    configuration = settings.configuration_of(ctx)
    if not remove:
        install.refuse_password(os.environ)
    driver = install.Driver(
        argv=(*_command(), *_options(ctx), "tick", "--quiet"),
        environ=install.environment(os.environ),
        home=Path(os.path.expanduser("~")),
        state_dir=configuration.state_dir,
    )
    if not write and not remove:
        terminal.print_exactly(install.text(driver, kind))
        return
    for sentence in install.install(driver, kind, os.environ, remove=remove):
        output.say(sentence)


def _command() -> list[str]:
    """Return what starts this program from anywhere."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return [sys.executable, "-m", "orchestrator"]
    found = shutil.which(called) or called
    return [os.path.abspath(found)]


def _options(ctx: click.Context) -> list[str]:
    given = ctx.obj or {}
    return [
        word
        for key, value in given.items()
        for word in (
            f"--{key.replace('_', '-')}",
            os.path.abspath(value) if key.endswith("_dir") else str(value),
        )
    ]
