"""Finds out what became of commands whose connection broke before their exit code had come."""

from __future__ import annotations

import datetime
import math
import shlex
import time
from collections.abc import Callable

from orchestrator import errors
from orchestrator.controller.remote import channel as channels
from orchestrator.controller.remote import pending
from orchestrator.controller.remote.connection import Connection, Remote
from orchestrator.remote import framing, messages
from orchestrator.remote.framing import Message

#: What a command printed is shown up to here.
_MAX_BYTES = 1024 * 1024


class RefusedError(errors.OrchestratorError):
    """The host refuses to answer; the message is its reason."""


def settle(
    connection: Connection,
    remote: Remote,
    folder: pending.Folder,
    report: Callable[[str], None],
) -> None:
    """Report for each pending request whether it was run, and what it printed.

    A request that the host does not know can never run afterwards. Raises ClosedError.
    """
    with folder.unattended() as unattended:
        for request in unattended:
            if request.store != connection.greeting.store:
                report(_elsewhere(request, remote, connection.greeting))
                continue
            asking = messages.of_request("settle", request.request)
            try:
                answer, code, pieces = ask(connection.channel, asking, limit_bytes=_MAX_BYTES)
            except RefusedError as error:
                # Later commands do not depend on it.
                report(
                    f"{remote.name} refuses to say what became of {_subject(request)}: {error}. "
                    f"To ask no more: {shlex.join(['rm', str(folder.path(request.request))])}"
                )
                continue
            if messages.standing(answer) == "ended":
                report(f"{_subject(request)} has run on {remote.name} (exit code {code}):")
                output = b"".join(data for _, data in pieces)
                report(output.decode(errors="backslashreplace").rstrip("\n"))
            else:
                report(not_ended(answer, remote.name, _subject(request)))
            if messages.standing(answer) != "running":
                folder.remove(request.request)
                connection.channel.send(messages.of_request("done", request.request))


def not_ended(answer: Message, name: str, subject: str) -> str:
    """Return what became of a command that has no exit code.

    answer: the host's message. subject: what to call the command.
    """
    standing, jobs = messages.standing(answer), messages.jobs_of(answer)
    if standing == "never":
        return f"{subject} was never run on {name}: the connection broke before."
    if standing == "running":
        return f"{subject} is still running on {name}."
    began = f"{subject} began on {name}, but the process that ran it disappeared."
    shown = ["orchestrator", "--host", name, "status"]
    if jobs:
        shown = [*shown, *jobs]
        began += f" It submitted or changed {', '.join(jobs)}."
    return f"{began} `{shlex.join(shown)}` shows what it has done."


def _subject(request: pending.Pending) -> str:
    words = shlex.join(["orchestrator", *request.words])
    at = datetime.datetime.fromtimestamp(request.at)
    return f"`{words}` of {at:%Y-%m-%d %H:%M}"


def _elsewhere(request: pending.Pending, remote: Remote, greeting: messages.Greeting) -> str:
    return (
        f"{_subject(request)} was sent to {request.host}; {greeting.host}, which answers as "
        f"{remote.name} now, has another state folder. Name {request.host} as `address` in "
        f"[hosts.{remote.name}] to see what became of it, and set state_dir to a folder that both "
        "hosts share."
    )


def ask(
    channel: channels.Channel,
    asking: Message,
    deadline: float = math.inf,
    *,
    limit_bytes: int,
) -> tuple[Message, int, list[tuple[object, bytes]]]:
    """Return the answer to `settle` or `run`, the exit code, and what the command printed.

    What it printed are pieces, each with the number of its stream; what is beyond `limit_bytes` is
    left out. deadline: by time.monotonic(). Raises ClosedError, also at the deadline, RefusedError
    and FramingError.
    """
    channel.send(asking)
    request = asking.text("request")
    spool, pieces = framing.Decoder(), list[tuple[object, bytes]]()
    answer, left_bytes = Message({}), limit_bytes
    heard_at = time.monotonic()
    while (now := time.monotonic()) < min(deadline, heard_at + messages.SILENT_SECONDS):
        received, _ = channel.exchange(min(1.0, deadline - now))
        for message in received:
            if message.keys.get("request") != request:
                continue
            heard_at = now
            if message.kind == "standing":
                answer = message
                if messages.standing(answer) != "ended":
                    return answer, 0, []
            elif message.kind == "output":
                for piece in spool.feed(message.payload):
                    pieces.append((piece.keys.get("stream"), piece.payload[:left_bytes]))
                    left_bytes -= len(pieces[-1][1])
                end = message.number("offset") + len(message.payload)
                channel.send(messages.of_request("ack", request, offset=end))
            elif message.kind == "ended":
                return answer, messages.exit_code(message), pieces
            elif message.kind == "refused":
                raise RefusedError(message.text("reason"))
    raise channels.ClosedError
