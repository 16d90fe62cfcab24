"""orchestrator schedule next."""

from __future__ import annotations

import click

from orchestrator import schedules
from orchestrator.cli import output, session
from orchestrator.controller.schedules import management

COLUMNS = ("local", "utc", "note")


@click.command(short_help="Show the next planned times, with changes of the clocks.")
@click.argument("name", metavar="NAME")
@click.option(
    "--count",
    type=click.IntRange(min=1, max=10_000),
    default=5,
    show_default=True,
    help="So many.",
)
@output.format_option
@click.pass_context
def command(ctx: click.Context, name: str, count: int, format_: str | None, as_json: bool) -> None:
    """Show the next planned times, on the clocks of its zone and in UTC.

    A time of day that the clocks leap over is planned for the moment after the leap, one that comes
    twice for the first of the two. Expressions whose minute or hour begins with * are of intervals,
    and follow the clocks.

    \b
    Example:
      orchestrator schedule next nightly --count 10
    """
    context = session.open_context(ctx)
    stored = management.find(context, name)
    calendar = stored.rule.calendar
    zone = calendar.zone
    after = max(context.clock.now(), stored.decided_until)
    rows = [
        {
            "planned_at": one.at,
            "local": one.at.astimezone(zone).isoformat(timespec="minutes"),
            "utc": f"{one.at:%Y-%m-%dT%H:%MZ}",
            "note": schedules.note(one, zone),
        }
        for one in schedules.moments(calendar, after, count)
    ]
    output.items("planned_times", rows, COLUMNS, output.chosen(format_, as_json))
    if stored.state == "paused":
        output.say(f"{name} is paused: `orchestrator schedule resume {name}` lets it go on")
