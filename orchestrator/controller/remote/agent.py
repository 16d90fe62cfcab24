"""The side of a connection that is on the host: `orchestrator agent --stdio`, started by ssh.

It has no state of its own. Any agent of the host, also on another of its login nodes, can continue
what an earlier one has begun.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import orchestrator
from orchestrator import errors
from orchestrator.controller.remote import channel as channels
from orchestrator.controller.remote import keeper, requests
from orchestrator.remote import messages
from orchestrator.remote.framing import FramingError, Message

if TYPE_CHECKING:
    from orchestrator.controller.remote import transfer

#: How often a spool is looked at whose keeper another agent has started.
_POLL_SECONDS = 0.2
#: How often it is checked whether such a keeper still exists.
_CHECK_SECONDS = 5.0
_PIECE_BYTES = 256 * 1024
#: A client gets so much that it has not acknowledged: a slow one does not delay the others.
_WINDOW_BYTES = 4 * 1024**2
#: An agent without any sign of its client ends.
_SILENT_SECONDS = 300.0


@dataclasses.dataclass(kw_only=True)
class _Relay:
    """Passes the spool of one request to the client."""

    request: requests.Request
    changes: bool
    offset: int
    #: None: another agent has started the keeper
    wake: int | None
    #: the client has written the output up to here
    acknowledged: int
    check_at: float = 0.0
    #: the client has been told that the request ended
    is_over: bool = False

    @property
    def is_ahead(self) -> bool:
        """Whether the client has enough to write."""
        return self.offset - self.acknowledged >= _WINDOW_BYTES


def serve(
    reading: int,
    writing: int,
    store: requests.Requests,
    make_receiver: Callable[[], transfer.Receiver],
    jobs_of: Callable[[str], Sequence[str]],
) -> keeper.Command | None:
    """Answer one client until the connection ends.

    make_receiver: makes what takes snapshots, when the first comes: it loads the database's
    libraries. jobs_of: returns the jobs that a request has submitted or changed.

    Returns a command in the process that is to run it, and None in the agent. Raises
    OrchestratorError if the state folder cannot be used.
    """
    store.make()
    channel = channels.Channel(reading, writing)
    greeting = messages.Greeting(
        protocols=messages.PROTOCOLS,
        version=orchestrator.__version__,
        host=socket.gethostname(),
        store=store.store_id(),
    )
    channel.send_raw(greeting.encoded())
    agent = _Agent(channel, store, make_receiver, jobs_of)
    with contextlib.suppress(channels.ClosedError):
        try:
            return agent.serve()
        except FramingError as error:
            channel.send(Message({"type": "refused", "reason": str(error)}))
            channel.exchange(0, is_reading=False)
    agent.close()
    return None


class _Agent:
    def __init__(
        self,
        channel: channels.Channel,
        store: requests.Requests,
        make_receiver: Callable[[], transfer.Receiver],
        jobs_of: Callable[[str], Sequence[str]],
    ) -> None:
        self._channel, self._store = channel, store
        self._make_receiver = make_receiver
        #: by request: `connect` passes several snapshots on at the same time
        self._receivers: dict[str, transfer.Receiver] = {}
        self._jobs_of = jobs_of
        self._relays: dict[str, _Relay] = {}

    def serve(self) -> keeper.Command | None:
        heard_at = said_at = time.monotonic()
        beat_at = 0.0
        while True:
            now = time.monotonic()
            if now - heard_at > _SILENT_SECONDS:
                return None
            if now - said_at >= messages.ALIVE_SECONDS:
                said_at = now
                self._channel.send(Message({"type": "alive"}))
            received, ready = self._channel.exchange(
                self._timeout_seconds(), readable=self._wakes()
            )
            if received:
                heard_at = now
                if now - beat_at >= requests.BEAT_SECONDS / 2:
                    beat_at = now
                    for relay in self._relays.values():
                        relay.request.beat("client")
            for message in received:
                try:
                    command = self._answer(message)
                except (FramingError, errors.OrchestratorError, OSError) as error:
                    self._refuse(message, str(error))
                    continue
                if command is not None:
                    return command
            for relay in list(self._relays.values()):
                try:
                    self._pass_on(relay, ready)
                except (errors.OrchestratorError, OSError) as error:
                    self._end(relay, Message({"type": "refused", "reason": str(error)}))

    def close(self) -> None:
        """Drop what has not arrived completely."""
        for request in list(self._receivers):
            self._drop_snapshot(request)

    def _drop_snapshot(self, request: str) -> None:
        if (receiver := self._receivers.pop(request, None)) is not None:
            receiver.close()

    def _wakes(self) -> list[int]:
        if self._channel.is_full:
            return []
        relays = self._relays.values()
        return [relay.wake for relay in relays if relay.wake is not None and not relay.is_over]

    def _timeout_seconds(self) -> float:
        waiting = [relay for relay in self._relays.values() if not relay.is_over]
        return _POLL_SECONDS if any(relay.wake is None for relay in waiting) else 1.0

    def _refuse(self, message: Message, reason: str) -> None:
        request = message.keys.get("request")
        keys = {"request": request} if isinstance(request, str) else {}
        self._channel.send(Message({"type": "refused", **keys, "reason": reason}))

    def _answer(self, message: Message) -> keeper.Command | None:
        match message.kind:
            case "hello" | "alive":
                pass
            case "run":
                return self._run(messages.Run.of(message))
            case "settle":
                self._settle(messages.request_id(message))
            case "control":
                self._store.find(messages.request_id(message)).control(_control_line(message))
            case "ack":
                self._acknowledge(messages.request_id(message), message.number("offset"))
            case "tree" | "pack" | "packed" | "keep":
                self._receive(messages.request_id(message), message)
            case "done":
                self._drop_snapshot(messages.request_id(message))
                self._forget(messages.request_id(message))
            case kind:
                raise FramingError(f"unknown message {kind!r}")
        return None

    def _receive(self, request: str, message: Message) -> None:
        if request not in self._receivers:
            self._receivers[request] = self._make_receiver()
        if (answer := self._receivers[request].answer(message)) is not None:
            self._channel.send(answer)
        if message.kind == "keep":
            self._drop_snapshot(request)

    def _run(self, run: messages.Run) -> keeper.Command | None:
        request = self._store.open(run.request)
        wake, changes = None, run.changes
        if (claim := request.claimed()) is None:
            wake, command = keeper.start(request, run)
            if command is not None:
                return command
        else:
            # What the first client said holds: its output is still needed, and so is the request.
            changes = claim.get("changes") is not False
            request.beat("client")
        self._close(run.request)
        self._relays[run.request] = _Relay(
            request=request,
            changes=changes,
            offset=run.offset,
            acknowledged=run.offset,
            wake=wake,
        )
        return None

    def _acknowledge(self, request: str, offset: int) -> None:
        if (relay := self._relays.get(request)) is not None:
            relay.acknowledged = offset
            if not relay.changes:
                relay.request.drop_output(offset)

    def _settle(self, request: str) -> None:
        standing = self._store.settled(request)
        self._channel.send(self._standing(request, standing))
        if standing == "ended":
            self._close(request)
            self._relays[request] = _Relay(
                request=self._store.find(request),
                changes=True,
                offset=0,
                acknowledged=0,
                wake=None,
            )

    def _pass_on(self, relay: _Relay, ready: set[int]) -> None:
        """Send new output, and the exit code after the last of it."""
        if relay.is_over or self._channel.is_full:
            return
        is_gone = False
        if relay.wake is not None:
            if relay.wake not in ready:
                return
            # At most what one look at the spool covers; b"": the keeper has ended.
            is_gone = not os.read(relay.wake, 4096)
        # Before the output is read: then all of it is in the spool.
        code = relay.request.exit_code()
        while not self._channel.is_full and not relay.is_ahead:
            piece = relay.request.output(relay.offset, _PIECE_BYTES)
            if not piece:
                break
            keys = {"offset": relay.offset}
            self._channel.send(
                messages.of_request("output", relay.request.id, payload=piece, **keys)
            )
            relay.offset += len(piece)
        else:
            # The rest when there is room again.
            self._follow_by_looking(relay)
            return
        if code is not None:
            self._end(relay, messages.of_request("ended", relay.request.id, code=code))
        elif is_gone:
            self._follow_by_looking(relay)
        elif relay.wake is None and time.monotonic() >= relay.check_at:
            relay.check_at = time.monotonic() + _CHECK_SECONDS
            self._check(relay)

    def _follow_by_looking(self, relay: _Relay) -> None:
        if relay.wake is not None:
            os.close(relay.wake)
            relay.wake = None

    def _check(self, relay: _Relay) -> None:
        """End the relay of a request that nobody runs."""
        match relay.request.standing():
            case "running" | "ended":
                return
            case standing:
                # None: the keeper could not even make its claim.
                self._end(relay, self._standing(relay.request.id, standing or "lost"))

    def _standing(self, request: str, standing: messages.Standing) -> Message:
        jobs = list(self._jobs_of(request)) if standing in ("lost", "never") else []
        if jobs:
            # It ran so long ago that it was removed here.
            standing = "lost"
        return messages.of_request("standing", request, standing=standing, jobs=jobs)

    def _end(self, relay: _Relay, message: Message) -> None:
        keys = {**message.keys, "request": relay.request.id}
        self._channel.send(Message(keys, message.payload))
        relay.is_over = True
        self._follow_by_looking(relay)

    def _close(self, request: str) -> None:
        if (relay := self._relays.pop(request, None)) is not None:
            self._follow_by_looking(relay)

    def _forget(self, request: str) -> None:
        relay = self._relays.get(request)
        self._close(request)
        # One that changes something is kept: a copy of it may still be on its way here.
        if relay is not None and not relay.changes and relay.request.exit_code() is not None:
            relay.request.remove()


def _control_line(message: Message) -> str:
    match message.text("event"):
        case "size":
            return f"size {message.number('columns')} {message.number('lines')}"
        case ("interrupt" | "end") as event:
            return event
        case event:
            raise FramingError(f"control: unknown event {event!r}")
