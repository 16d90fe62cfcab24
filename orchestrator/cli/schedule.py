"""orchestrator schedule: a group whose commands are modules of their own."""

from __future__ import annotations

import click

from orchestrator import cli

#: Command -> (module, the line shown by --help).
COMMANDS = {
    "add": ("schedule_add", "Submit a job or sweep at planned times from now on."),
    "list": ("schedule_list", "List the schedules, what is next and what was last."),
    "show": ("schedule_show", "Show all that is known of one schedule."),
    "next": ("schedule_next", "Show the next planned times, with changes of the clocks."),
    "history": ("schedule_history", "List what became of each planned time."),
    "run": ("schedule_run", "Submit it once, now."),
    "pause": ("schedule_pause", "Let a schedule plan nothing for a while."),
    "resume": ("schedule_resume", "Let a paused schedule go on."),
    "remove": ("schedule_remove", "End a schedule; its history is kept."),
    "install": ("schedule_install", "Set up what runs `orchestrator tick` regularly."),
}


@click.group(
    name="schedule",
    cls=cli.LazyGroup,
    modules=COMMANDS,
    short_help="Submit jobs and sweeps at planned times.",
)
def command() -> None:
    """Submit jobs and sweeps at planned times.

    Schedules are looked at by `orchestrator tick` and `orchestrator serve`; `schedule install` sets
    up cron, scrontab or systemd to run the first.
    """
