"""Formats of receivers: JSON for webhooks and commands, and mail."""

from __future__ import annotations

import dataclasses
import email.message
import email.utils
import json

from orchestrator.notices.records import Message
from orchestrator.text import escaping

#: Discord rejects longer messages (API reference, "Create Message").
_DISCORD_CHARACTERS = 2000
#: Slack truncates a text after 40,000 characters, Mattermost rejects more than 16,383.
_TEXT_CHARACTERS = 16_000


def readable(message: Message) -> Message:
    """Escape everything that has an effect on a mail reader, a chat or a terminal."""
    return dataclasses.replace(
        message,
        subject=escaping.one_line(message.subject),
        body=escaping.lines(message.body),
        notices=tuple(
            dataclasses.replace(
                notice,
                subject=escaping.one_line(notice.subject),
                body=escaping.lines(notice.body),
                labels=tuple(map(escaping.one_line, notice.labels)),
            )
            for notice in message.notices
        ),
    )


def webhook_body(form: str, message: Message) -> bytes:
    """Return the JSON that a webhook of this form gets, in UTF-8."""
    content: dict[str, object]
    if form == "json":
        return as_json(message)
    if form == "discord":
        # allowed_mentions: "@everyone" in a job's name mentions nobody.
        text = _text(message, "**", _DISCORD_CHARACTERS)
        content = {"content": text, "allowed_mentions": {"parse": []}}
    elif form == "slack":
        # Slack's own escapes, which also make "<!channel>" plain text.
        text = _text(message, "*", _TEXT_CHARACTERS)
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        content = {"text": text}
    else:
        # "@channel" mentions everybody outside of code blocks: a zero-width space prevents it.
        harmless = dataclasses.replace(message, subject=message.subject.replace("@", "@\u200b"))
        content = {"text": _text(harmless, "**", _TEXT_CHARACTERS)}
    return json.dumps(content, ensure_ascii=False).encode()


def as_json(message: Message) -> bytes:
    """Return a message as data for programs."""
    content = {
        "schema": "orchestrator/v1",
        "kind": "notices",
        "id": message.id,
        "at": message.at.isoformat(),
        "subject": message.subject,
        "body": message.body,
        "items": [
            {
                "key": notice.key,
                "kind": notice.kind,
                "subject": notice.subject,
                "body": notice.body,
                "row": notice.job_row,
                "sweep": notice.sweep_row,
                "schedule": notice.schedule_row,
                "labels": list(notice.labels),
            }
            for notice in message.notices
        ],
    }
    return json.dumps(content, ensure_ascii=False).encode()


def mail(message: Message, sender: str, to: tuple[str, ...]) -> email.message.EmailMessage:
    """Return a message as mail. The Message-ID of a repeated message is the same."""
    mail = email.message.EmailMessage()
    mail["Subject"] = f"[orchestrator] {message.subject}"
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = email.utils.format_datetime(message.at)
    mail["Message-ID"] = f"<{message.id}>"
    # RFC 3834: prevents out-of-office replies.
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(f"{message.body}\n")
    return mail


def _text(message: Message, mark: str, max_characters: int) -> str:
    body = message.body.replace("```", "'''")
    head = f"{mark}{message.subject}{mark}\n```\n"
    room = max_characters - len(head) - 4
    return f"{head}{body if len(body) <= room else body[: room - 4] + ' ...'}\n```"
