"""Send notifications through the channels of the configuration, each once.

New notices are stored in one transaction with the cursor: if the process is killed, they are found
again or are stored already. Before a message is sent, a reservation is committed; afterwards the
outcome. If the process is killed between the receiver's reply and our commit, the message is sent
again with the same Message-ID or Idempotency-Key: it may arrive twice but is never lost.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from orchestrator import config, errors
from orchestrator.controller.notices import events
from orchestrator.controller.session import contexts
from orchestrator.notices import texts
from orchestrator.notices.records import Delivery, Notice
from orchestrator.text.nouns import count

NOTICES_PER_MESSAGE = 1000
#: Per channel.
MESSAGES_PER_PASS = 5
#: Setting in the database that stores the cursor.
KEY = "noticed"


def step(context: contexts.Context) -> list[str]:
    """Find new notices and send what is due; return one sentence per action."""
    channels = context.configuration.notices
    _store_new(context, channels)
    with context.store.reading() as work:
        names = work.notices.unsent_channels()
    done: list[str] = []
    for name in sorted(names):
        channel = channels.get(name)
        if channel is None:
            reason = f"the configuration no longer has the channel {name}"
            with context.store.writing() as work:
                given_up = work.notices.give_up(name, reason)
            if given_up:
                done.append(f"{count(given_up, 'notification')} by {name} not sent: {reason}")
            continue
        for _ in range(MESSAGES_PER_PASS):
            sentences, is_sent = _send_next(context, name, channel)
            done += sentences
            if not is_sent:
                break
    return done


def send_test(context: contexts.Context, name: str) -> str:
    """Send a test message through a channel; return a warning or "". Raises SendError."""
    from orchestrator.controller.notices import senders

    now = context.clock.now()
    with context.store.reading() as work:
        origin = work.settings.installation_id()
    notice = Notice(
        key=f"test:{now.isoformat()}",
        kind="end",
        subject=f"test of {name}",
        body=f"`orchestrator notices test {name}` sent this message: the channel works.",
    )
    with context.reporter.activity(f"Sending a test ({name})"):
        return senders.send(
            context.configuration.notices[name],
            texts.message([notice], name, origin, now),
            context.environ,
        )


def _store_new(context: contexts.Context, channels: Mapping[str, config.Channel]) -> None:
    now = context.clock.now()
    with context.store.reading() as work:
        stored = work.settings.get(KEY)
        if not channels and not stored:
            return
        if channels and stored:
            cursor = events.Cursor.of_json(stored)
            notices, new_cursor = events.find(work, cursor, now)
            # Notices that no channel asks for are not stored.
            new = [(notice, names) for notice in notices if (names := _names(channels, notice))]
            if new_cursor == cursor and not new:
                return
    with context.store.writing() as work:
        if work.settings.get(KEY) != stored:
            # Another process did it.
            return
        if not channels:
            # If a channel is added again, it does not get what happened before.
            work.settings.put(KEY, "")
        elif not stored:
            first = events.Cursor(event=work.events.newest(), since=now)
            work.settings.put(KEY, first.to_json())
        else:
            for notice, names in new:
                work.notices.add(notice, names, now)
            work.settings.put(KEY, new_cursor.to_json())


def _names(channels: Mapping[str, config.Channel], notice: Notice) -> list[str]:
    return [
        name
        for name, channel in channels.items()
        if channel.wants(notice.kind) and set(channel.labels) <= set(notice.labels)
    ]


def _send_next(
    context: contexts.Context, name: str, channel: config.Channel
) -> tuple[list[str], bool]:
    """Send one message with what is due; return sentences, and whether it was sent."""
    now = context.clock.now()
    context.guard.check()
    with context.store.reading() as work:
        # What may have been sent before is sent alone: the same notices are the same message.
        due = work.notices.due(name, "sending", now, NOTICES_PER_MESSAGE)
        due = due or work.notices.due(name, "waiting", now, NOTICES_PER_MESSAGE)
        origin = work.settings.installation_id()
    if not due:
        return [], False
    until = now + datetime.timedelta(seconds=channel.timeout_seconds + 5.0)
    with context.store.writing(durable=True) as work:
        if not work.notices.claim(name, due, until):
            raise errors.ConflictError(f"another process sends the notifications of {name}")
    notices = [delivery.notice for delivery in due]
    message = texts.message(notices, name, origin, due[0].created_at)
    context.guard.check()
    # ssl and smtplib take 0.1 s to import, and few passes send something.
    from orchestrator.controller.notices import senders

    try:
        with context.reporter.activity(f"Sending notifications ({name})"):
            warning = senders.send(channel, message, context.environ)
    except senders.SendError as error:
        return _store_failure(context, name, due, error, is_uncertain=error.may_have_it), False
    sent_at = context.clock.now()
    with context.store.writing() as work:
        work.notices.change(name, due, state="sent", sent_at=sent_at, error=warning or None)
    return [f"Sent {count(len(due), 'notification')} by {name}: {message.subject}"], True


def _store_failure(
    context: contexts.Context,
    name: str,
    due: Sequence[Delivery],
    error: Exception,
    *,
    is_uncertain: bool,
) -> list[str]:
    """Store the time of the next try, or give up after a day."""
    now, why = context.clock.now(), str(error)
    given_up: list[Delivery] = []
    remaining: list[Delivery] = []
    for delivery in due:
        is_old = abs((now - delivery.created_at).total_seconds()) >= texts.GIVE_UP_SECONDS
        (given_up if is_old else remaining).append(delivery)
    sentences: list[str] = []
    with context.store.writing() as work:
        if given_up:
            work.notices.change(name, given_up, state="failed", error=why)
            detail = f"notification by {name} given up after a day: {why}"
            event = context.event("notice", detail, source="controller")
            rows = [delivery.notice.job_row for delivery in given_up]
            work.events.add_many((row, event) for row in rows if row is not None)
            sentences.append(
                f"{count(len(given_up), 'notification')} by {name} given up after a day: {why}"
            )
        if remaining:
            tries = max(delivery.tries for delivery in remaining) + 1
            seconds = texts.retry_seconds(tries, f"{name}:{remaining[0].notice.key}")
            work.notices.change(
                name,
                remaining,
                # The same message again if the receiver may have it; otherwise with new notices.
                state="sending" if is_uncertain else "waiting",
                next_at=now + datetime.timedelta(seconds=seconds),
                error=why,
            )
            sentences.append(
                f"{count(len(remaining), 'notification')} by {name} not sent, retry later: {why}"
            )
    return sentences
