"""noticing: what happened is told by the channels of the configuration, each once.

Two halves. What is new goes into the outbox in one transaction with the cursor: killed before, it
is found again; killed after, it is not found twice. Then what is due goes out: a claim is committed
before, the answer after. Killed between the receiver's answer and our own commit, it goes out once
more with the same Message-ID or Idempotency-Key: a notice may come twice, and is never lost.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from db import unit_of_work
from orchestrator import config, errors, jobs, notices
from orchestrator.controller.notices import events
from orchestrator.controller.session import contexts

#: Notices in one message, which tells some in full and counts the others.
AT_ONCE = 1000
#: Messages by one channel in one pass.
MESSAGES_AT_ONCE = 5
KEY = "noticed"


def step(context: contexts.Context) -> list[str]:
    """Find what is new, and send what is due; returns what was done, in sentences."""
    channels = context.configuration.notices
    _find(context, channels)
    return _deliver(context, channels)


def try_out(context: contexts.Context, name: str) -> str:
    """Send a message of no account by this channel; returns what is to be noted, "": nothing.

    Raises ReceiverError.
    """
    from orchestrator.controller.notices import receivers

    now = context.clock.now()
    with context.store.reading() as work:
        origin = work.settings.installation_id()
    notice = notices.Notice(
        key=f"test:{now.isoformat()}",
        kind="end",
        subject=f"test of {name}",
        body=f"`orchestrator notices test {name}` sent this: the channel works.",
    )
    with context.reporter.activity(f"Sending a test ({name})"):
        return receivers.send(
            context.configuration.notices[name],
            notices.message([notice], name, origin, now),
            context.environ,
        )


def _find(context: contexts.Context, channels: Mapping[str, config.Channel]) -> None:
    with context.store.reading() as work:
        text = work.settings.get(KEY)
        if not channels:
            if not text:
                return
        elif text:
            cursor = events.Cursor.of_json(text)
            found, after = events.look(work, cursor, context.clock.now())
            labels = _labels(work, found)
            # What nobody wants to be told of is not kept.
            told = [(one, by) for one in found if (by := _receivers(channels, one, labels))]
            if after == cursor and not told:
                return
    now = context.clock.now()
    with context.store.writing() as work:
        if work.settings.get(KEY) != text:
            # Another process was faster.
            return
        if not channels:
            # Who names a channel again is not told of all that was meanwhile.
            work.settings.put(KEY, "")
        elif not text:
            first = events.Cursor(event=work.notices.newest_event(), since=now)
            work.settings.put(KEY, first.to_json())
        else:
            for one, by in told:
                work.notices.add(one, by, now)
            work.settings.put(KEY, after.to_json())


def _labels(
    work: unit_of_work.UnitOfWork, found: Sequence[notices.Notice]
) -> Mapping[int, tuple[str, ...]]:
    """Return the labels of the jobs that verdicts are about, by row."""
    rows = [one.job_row for one in found if one.job_row is not None and not one.labels]
    if not rows:
        return {}
    query = jobs.JobQuery(rows=rows, limit=None)
    return {job.row: job.labels for job in work.jobs.find(query)}


def _receivers(
    channels: Mapping[str, config.Channel],
    notice: notices.Notice,
    labels: Mapping[int, tuple[str, ...]],
) -> list[str]:
    has = notice.labels or labels.get(notice.job_row or 0, ())
    return [
        name
        for name, channel in channels.items()
        if channel.wants(notice.kind) and set(channel.labels) <= set(has)
    ]


def _deliver(context: contexts.Context, channels: Mapping[str, config.Channel]) -> list[str]:
    with context.store.reading() as work:
        names = work.notices.unsent_channels()
    done: list[str] = []
    for name in sorted(names):
        channel = channels.get(name)
        if channel is None:
            done += _drop(context, name)
            continue
        for _ in range(MESSAGES_AT_ONCE):
            told, good = _send_one(context, name, channel)
            done += told
            if not good:
                break
    return done


def _drop(context: contexts.Context, name: str) -> list[str]:
    why = f"the configuration has no channel {name} any more"
    with context.store.writing() as work:
        count = work.notices.give_up(name, why)
    return [f"{_count(count)} by {name} not sent: {why}"] if count else []


def _send_one(
    context: contexts.Context, name: str, channel: config.Channel
) -> tuple[list[str], bool]:
    """Send one message of what is due; returns what was done, and whether to go on."""
    now = context.clock.now()
    context.guard.check()
    with context.store.reading() as work:
        # What may have been taken before is sent alone: the same notices make the same message.
        some = work.notices.due(name, "sending", now, AT_ONCE)
        some = some or work.notices.due(name, "waiting", now, AT_ONCE)
        origin = work.settings.installation_id()
    if not some:
        return [], False
    until = now + datetime.timedelta(seconds=channel.timeout_seconds + 5.0)
    with context.store.writing(durable=True) as work:
        if not work.notices.claim(name, some, until):
            raise errors.ConflictError(f"another process sends the notices of {name}")
    message = notices.message([one.notice for one in some], name, origin, some[0].created_at)
    context.guard.check()
    # ssl and smtplib take a tenth of a second to import, and few passes send something.
    from orchestrator.controller.notices import receivers

    try:
        with context.reporter.activity(f"Sending notices ({name})"):
            note = receivers.send(channel, message, context.environ)
    except receivers.ReceiverError as exc:
        return _failed(context, name, some, str(exc), may_have_it=exc.may_have_it), False
    with context.store.writing() as work:
        work.notices.change(
            name, some, state="sent", sent_at=context.clock.now(), error=note or None
        )
    return [f"Sent {_count(len(some))} by {name}: {message.subject}"], True


def _failed(
    context: contexts.Context,
    name: str,
    some: Sequence[notices.Delivery],
    why: str,
    *,
    may_have_it: bool,
) -> list[str]:
    """Store when it is tried again, or after a day that it is not."""
    now = context.clock.now()
    over = [
        one
        for one in some
        if abs((now - one.created_at).total_seconds()) >= notices.GIVE_UP_SECONDS
    ]
    rest = [one for one in some if one not in over]
    told: list[str] = []
    with context.store.writing() as work:
        if over:
            work.notices.change(name, over, state="failed", error=why)
            detail = f"not told by {name}, and given up after a day: {why}"
            event = jobs.JobEvent(at=now, kind="notice", source="controller", detail=detail)
            work.events.add_many(
                (row, event) for one in over if (row := one.notice.job_row) is not None
            )
            told.append(f"{_count(len(over))} given up after a day, {name} failed: {why}")
        if rest:
            # Together as before where the receiver may have them, else with what is new by then.
            tries = max(one.tries for one in rest) + 1
            seconds = notices.retry_seconds(tries, f"{name}:{rest[0].notice.key}")
            work.notices.change(
                name,
                rest,
                state="sending" if may_have_it else "waiting",
                next_at=now + datetime.timedelta(seconds=seconds),
                error=why,
            )
            told.append(f"{_count(len(rest))} by {name} not sent, tried again later: {why}")
    return told


def _count(count: int) -> str:
    return f"{count} notice{'' if count == 1 else 's'}"
