"""orchestrator notices."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import commands, output
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.session import contexts
from orchestrator.rows import row_values

COLUMNS = (
    Column("at", drop=5),
    Column("kind", drop=3),
    Column("subject", "text"),
    Column("channel", "name"),
    Column("state"),
    Column("tries", drop=1),
    Column("next_at", drop=2),
    Column("error", "text", drop=4),
)


@click.group("notices", cls=commands.Group)
def notice_commands() -> None:
    """List sent notifications, or send a test message.

    `tick` and `serve` send notifications over the channels of the configuration.
    """


@notice_commands.command(
    "list",
    "orchestrator notices list",
    "orchestrator notices list --unsent",
    table=COLUMNS,
    changes="nothing",
    prints=("notices",),
)
def list_notices(
    context: contexts.Context,
    limit: int = options.limit,
    unsent: bool = option("--unsent", "Only notifications that are waiting or failed."),
    form: str = options.form,
) -> None:
    """List notifications and whether they were sent.

    The newest is first, with one row for each channel. A WAITING notification is sent by the next
    controller pass, or at NEXT_AT after an error. FAILED means that sending was given up after a
    day. ERROR is the last error.
    """
    states = ("waiting", "sending", "failed") if unsent else ()
    with context.store.reading() as work:
        deliveries = work.notices.deliveries(limit + 1, states)
    rows = [
        {
            "row": delivery.notice_row,
            "key": delivery.notice.key,
            "at": delivery.created_at,
            **row_values.fields_of(
                delivery.notice, ("kind", "subject", "body", "job_row", "sweep_row", "schedule_row")
            ),
            **row_values.fields_of(delivery, ("channel", "state", "tries")),
            "next_at": delivery.next_at if delivery.state in ("waiting", "sending") else None,
            **row_values.fields_of(delivery, ("sent_at", "error")),
        }
        for delivery in deliveries
    ]
    output.print_newest("notices", rows, COLUMNS, form, limit)


@notice_commands.command("test", "orchestrator notices test mail", changes="other")
def test(context: contexts.Context, channel: str = argument()) -> None:
    """Send a test message over a channel."""
    from orchestrator.controller.notices import delivery

    channels = context.configuration.notices
    if channel not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise errors.NotFoundError(
            f"channel {channel!r} is not in the configuration. Channels: {known}. Add "
            f"[notices.{channel}] to the user's configuration file"
        )
    note = delivery.send_test(context, channel)
    click.echo(f"Sent a test message over {channel}: {channels[channel].receiver}")
    if note:
        output.note(note)


@notice_commands.command(
    "retry", "orchestrator notices retry && orchestrator tick", changes="other"
)
def retry(
    context: contexts.Context,
    channel: str | None = option("--channel", "Only notifications for this channel.", "NAME"),
) -> None:
    """Send waiting and failed notifications with the next controller pass."""
    with context.store.writing() as work:
        count = work.notices.retry(channel, context.clock.now())
    click.echo(f"The next controller pass sends {output.count(count, 'notification')}")
