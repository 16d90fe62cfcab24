"""orchestrator sweep: a group whose commands are modules of their own."""

from __future__ import annotations

import click

from orchestrator import cli

#: Command -> (module, the line shown by --help).
COMMANDS = {
    "submit": ("sweep_submit", "Submit all points of a sweep, each exactly once."),
    "render": ("sweep_render", "Show the batch scripts of a sweep; nothing is submitted."),
    "list": ("sweep_list", "List the sweeps, and how far they are."),
    "status": ("sweep_status", "Show what the points of a sweep do."),
    "report": ("sweep_report", "Show how a study scaled: table, fits and plots."),
    "resume": ("sweep_resume", "Submit the points that are not submitted yet."),
    "rerun": ("sweep_rerun", "Submit points again that failed or are missing."),
    "add": ("sweep_add", "Add points to a sweep, and submit them."),
    "cancel": ("sweep_cancel", "Cancel a sweep: its jobs, and what is not submitted yet."),
}


@click.group(
    name="sweep",
    cls=cli.LazyGroup,
    modules=COMMANDS,
    short_help="Submit many jobs of one spec, and follow them together.",
)
def command() -> None:
    """Submit many jobs of one spec, and follow them together."""
