"""A message as receivers take it: JSON of webhooks and commands, and mail. Pure."""

from __future__ import annotations

import dataclasses
import email.message
import email.utils
import json
from typing import Any

from orchestrator import notices
from orchestrator.text import escaping

#: Discord refuses a message with more than 2,000 characters (its API reference, "Create Message").
_DISCORD_CHARACTERS = 2000
#: Slack cuts a text behind 40,000 characters, Mattermost refuses one of more than 16,383.
_TEXT_CHARACTERS = 16_000


def readable(message: notices.Message) -> notices.Message:
    """Return the message with everything escaped that acts on a mail reader, chat or terminal."""
    return dataclasses.replace(
        message,
        subject=escaping.one_line(message.subject),
        body=escaping.lines(message.body),
        notices=tuple(
            dataclasses.replace(
                one,
                subject=escaping.one_line(one.subject),
                body=escaping.lines(one.body),
                labels=tuple(map(escaping.one_line, one.labels)),
            )
            for one in message.notices
        ),
    )


def payload(form: str, message: notices.Message) -> bytes:
    """Return what a webhook of this form is sent, as JSON in UTF-8."""
    if form == "json":
        return as_json(message)
    content: dict[str, Any]
    if form == "discord":
        # Nobody is called by a job's name: "@everyone" is only text (allowed_mentions).
        text = _text(message, "**", _DISCORD_CHARACTERS)
        content = {"content": text, "allowed_mentions": {"parse": []}}
    elif form == "slack":
        # "&", "<" and ">" are Slack's own signs, so also of "<!channel>".
        content = {"text": _slack(_text(message, "*", _TEXT_CHARACTERS))}
    else:
        # "@channel" calls all but in code, where the body is: a space that is not seen stops it.
        quiet = dataclasses.replace(message, subject=message.subject.replace("@", "@\u200b"))
        content = {"text": _text(quiet, "**", _TEXT_CHARACTERS)}
    return json.dumps(content, ensure_ascii=False).encode()


def as_json(message: notices.Message) -> bytes:
    """Return a message as data, for programs."""
    items = [
        {
            "key": one.key,
            "kind": one.kind,
            "subject": one.subject,
            "body": one.body,
            "row": one.job_row,
            "sweep": one.sweep_row,
            "schedule": one.schedule_row,
            "labels": list(one.labels),
        }
        for one in message.notices
    ]
    content = {
        "schema": "orchestrator/v1",
        "kind": "notices",
        "id": message.id,
        "at": message.at.isoformat(),
        "subject": message.subject,
        "body": message.body,
        "items": items,
    }
    return json.dumps(content, ensure_ascii=False).encode()


def mail(message: notices.Message, sender: str, to: tuple[str, ...]) -> email.message.EmailMessage:
    """Return a message as mail. Its Message-ID stays the same: who gets it twice can drop one."""
    made = email.message.EmailMessage()
    made["Subject"] = f"[orchestrator] {message.subject}"
    made["From"] = sender
    made["To"] = ", ".join(to)
    made["Date"] = email.utils.format_datetime(message.at)
    made["Message-ID"] = f"<{message.id}>"
    # RFC 3834: no answer of an absent reader is wanted.
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(f"{message.body}\n")
    return made


def _text(message: notices.Message, mark: str, most: int) -> str:
    body = message.body.replace("```", "'''")
    head = f"{mark}{message.subject}{mark}\n```\n"
    room = most - len(head) - 4
    return f"{head}{body if len(body) <= room else body[: room - 4] + ' ...'}\n```"


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
