"""Messages over two file descriptors, without ever waiting for one side alone."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

from orchestrator.remote import framing
from orchestrator.remote.framing import Message

_READ_BYTES = 256 * 1024
#: Beyond this nothing more should be sent for now.
_FULL_BYTES = 1024 * 1024


class ClosedError(Exception):
    """The other side has closed the channel."""


class Channel:
    """Sends and receives messages. It does not close the descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        self._reading, self._writing = reading, writing
        self._decoder = framing.Decoder()
        self._unsent = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether the other side reads more slowly than we write."""
        return len(self._unsent) >= _FULL_BYTES

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the other side reads."""
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Queue a message; exchange() writes it."""
        self._unsent += message.encoded()

    def send_raw(self, data: bytes) -> None:
        """Queue bytes, such as the greeting."""
        self._unsent += data

    def read_raw(self, timeout_seconds: float | None = None) -> bytes:
        """Return the next bytes, before messages begin; b"" at the time limit. ClosedError."""
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if not poll.poll(None if timeout_seconds is None else timeout_seconds * 1000):
            return b""
        return self._read()

    def decoded(self, data: bytes) -> list[Message]:
        """Return the messages in bytes that read_raw() returned. Raises FramingError."""
        return list(self._decoder.feed(data))

    def exchange(
        self,
        timeout_seconds: float,
        *,
        readable: Sequence[int] = (),
        writable: Sequence[int] = (),
        is_reading: bool = True,
    ) -> tuple[list[Message], set[int]]:
        """Write what is queued, and wait for something to do.

        Returns the messages that arrived, and those of the descriptors `readable` and `writable`
        that are ready. is_reading: False leaves further messages where they are. Raises ClosedError
        and FramingError.
        """
        poll = select.poll()
        events = {self._reading: select.POLLIN if is_reading else 0}
        if self._unsent:
            events[self._writing] = events.get(self._writing, 0) | select.POLLOUT
        for descriptor in readable:
            events[descriptor] = events.get(descriptor, 0) | select.POLLIN
        for descriptor in writable:
            events[descriptor] = events.get(descriptor, 0) | select.POLLOUT
        for descriptor, mask in events.items():
            # Without an event poll() would still report, again and again, that it is closed.
            if mask:
                poll.register(descriptor, mask)
        ready = {descriptor for descriptor, _ in poll.poll(timeout_seconds * 1000)}
        messages: list[Message] = []
        if self._unsent and self._writing in ready:
            self._write()
        if is_reading and self._reading in ready:
            messages = self.decoded(self._read())
        return messages, ready

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._writing, bytes(self._unsent[:_READ_BYTES]))
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:
            # What the other side wrote before it went is still to be read, up to its end.
            self._unsent.clear()

    def _read(self) -> bytes:
        try:
            data = os.read(self._reading, _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ClosedError from error
        if not data:
            raise ClosedError
        return data
