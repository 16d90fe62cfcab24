"""orchestrator notices."""

from __future__ import annotations

import click

from orchestrator import errors
from orchestrator.cli import output, session

COLUMNS = ("at", "kind", "subject", "channel", "state", "tries", "next_at", "error")


@click.group(name="notices", short_help="List what was told to whom, and try a channel.")
def command() -> None:
    """List what was told to whom, and try a channel.

    `tick` and `serve` find what is new, and send it by the channels of the configuration.
    """


@command.command(name="list", short_help="List notices, and whether they were sent.")
@output.limit_option
@click.option("--unsent", is_flag=True, help="Only those that wait, or were given up.")
@output.format_option
@click.pass_context
def list_(ctx: click.Context, limit: int, unsent: bool, format_: str | None, as_json: bool) -> None:
    """List notices, newest first, each with its channels and whether it was sent.

    WAITING is sent with the next tick, or at NEXT_AT after a receiver failed; FAILED was given up
    after a day. ERROR says what the receiver answered last.

    \b
    Examples:
      orchestrator notices list
      orchestrator notices list --unsent
    """
    context = session.open_context(ctx)
    states = ("waiting", "sending", "failed") if unsent else ()
    with context.store.reading() as work:
        found = work.notices.deliveries(limit, states)
    rows = [
        {
            "row": one.notice_row,
            "key": one.notice.key,
            "at": one.created_at,
            "kind": one.notice.kind,
            "subject": one.notice.subject,
            "body": one.notice.body,
            "job_row": one.notice.job_row,
            "sweep_row": one.notice.sweep_row,
            "schedule_row": one.notice.schedule_row,
            "channel": one.channel,
            "state": one.state,
            "tries": one.tries,
            "next_at": one.next_at if one.state in ("waiting", "sending") else None,
            "sent_at": one.sent_at,
            "error": one.error,
        }
        for one in found
    ]
    output.items("notices", rows, COLUMNS, output.chosen(format_, as_json))


@command.command(short_help="Send a message of no account by a channel, now.")
@click.argument("channel")
@click.pass_context
def test(ctx: click.Context, channel: str) -> None:
    """Send a message of no account by a channel of the configuration, now and once.

    \b
    Example:
      orchestrator notices test mail
    """
    from orchestrator.controller.notices import send

    context = session.open_context(ctx)
    channels = context.configuration.notices
    if channel not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise errors.NotFoundError(
            f"no channel {channel!r} in the configuration. Known: {known}. [notices.NAME] in "
            "the user's configuration file makes one"
        )
    note = send.try_out(context, channel)
    click.echo(f"Sent a test by {channel}: {channels[channel].receiver}")
    if note:
        output.say(note)


@command.command(short_help="Let what was not sent be sent with the next tick.")
@click.option("--channel", metavar="NAME", help="Only what goes by this one.")
@click.pass_context
def retry(ctx: click.Context, channel: str | None) -> None:
    """Let what waits for its next try, or was given up, be sent with the next tick.

    \b
    Example:
      orchestrator notices retry && orchestrator tick
    """
    context = session.open_context(ctx)
    with context.store.writing() as work:
        count = work.notices.retry(channel, context.clock.now())
    verb = "is" if count == 1 else "are"
    click.echo(f"{count} notice{'' if count == 1 else 's'} {verb} sent with the next tick")
