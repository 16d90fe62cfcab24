"""orchestrator schedule show."""

from __future__ import annotations

import click

from orchestrator.cli import output, schedule_views, session
from orchestrator.controller.schedules import management
from orchestrator.controller.session import clock_check
from orchestrator.text import escaping
from orchestrator.toml import values

#: Firings that are shown; `schedule history` lists all of them.
SHOWN = 10


@click.command(short_help="Show all that is known of one schedule.")
@click.argument("name", metavar="NAME")
@output.format_option
@click.pass_context
def command(ctx: click.Context, name: str, format_: str | None, as_json: bool) -> None:
    """Show a schedule: when it fires, what it submits, and what became of it lately.

    \b
    Example:
      orchestrator schedule show nightly
    """
    context = session.open_context(ctx)
    stored = management.find(context, name)
    (summary,) = management.summaries(context, [stored], limit=SHOWN)
    with context.store.reading() as work:
        doubt = clock_check.stored_doubt(work)
    if doubt:
        output.say(doubt)
    chosen = format_ or ("json" if as_json else "table")
    changed = management.source_change(stored)
    if output.is_json(chosen):
        row = schedule_views.schedule_row(summary, chosen)
        row["source_changed"] = bool(changed)
        row["firings"] = schedule_views.firing_rows(summary.triggers, stored.tz, chosen)
        output.items("schedule", [row], (), chosen)
        return
    rows = schedule_views.firing_rows(summary.triggers, stored.tz, chosen)
    if chosen == "table":
        jitter = f", up to {values.elapsed(stored.jitter_seconds)} later"
        fields = (
            ("Schedule", f"{stored.name} ({stored.state})"),
            ("Planned", f"{stored.cron} in {stored.tz}{jitter if stored.jitter_seconds else ''}"),
            ("Next", schedule_views.local(summary.next_at, stored.tz) or "-"),
            ("Submits", f"{stored.kind} {stored.source}, from {stored.folder}"),
            ("Profile", f"{stored.profile}, on {stored.cluster}"),
            ("Missed", f"{stored.catchup}, at most {values.elapsed(stored.grace_seconds)} late"),
            ("Overlap", stored.overlap),
            ("Held to", f"baseline {stored.baseline}" if stored.baseline else "those before"),
            ("Added", f"{stored.created_at.astimezone():%Y-%m-%dT%H:%M:%S%z}"),
        )
        for label, text in fields:
            click.echo(f"{label:<9} {escaping.one_line(text)}")
        if rows:
            click.echo()
    if rows or chosen != "table":
        output.items("firings", rows, schedule_views.FIRING_COLUMNS, chosen)
    if changed:
        output.say(changed)
