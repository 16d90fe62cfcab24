"""Messages on a stream: a line of JSON, and after it as many raw bytes as its key `bytes` says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

#: The arguments of a command, of which Linux accepts 2 MiB, escaped as JSON.
MAX_LINE_BYTES = 16 * 1024**2
MAX_PAYLOAD_BYTES = 16 * 1024**2
#: What the agent writes before its first message. Start-up files may print before it.
MARKER = b"orchestrator-agent: "
#: Further output before the marker is not searched.
MAX_NOISE_BYTES = 1024**2


class FramingError(ValueError):
    """The bytes are no message."""


@dataclasses.dataclass(frozen=True)
class Message:
    """The keys of a message, and its raw bytes."""

    keys: Mapping[str, Any]
    payload: bytes = b""

    @property
    def kind(self) -> str:
        return str(self.keys.get("type", ""))

    def text(self, key: str) -> str:
        """Return a key that must be a string. Raises FramingError."""
        value = self.keys.get(key)
        if not isinstance(value, str):
            raise FramingError(f"{self.kind}: {key} must be a string")
        return value

    def number(self, key: str) -> int:
        """Return a key that must be an integer >= 0. Raises FramingError."""
        value = self.keys.get(key)
        if type(value) is not int or value < 0:
            raise FramingError(f"{self.kind}: {key} must be an integer >= 0")
        return value

    def encoded(self) -> bytes:
        """Return the bytes of the message."""
        size = {"bytes": len(self.payload)} if self.payload else {}
        return json.dumps({**self.keys, **size}).encode() + b"\n" + self.payload


class Decoder:
    """Splits a stream into messages, whatever the pieces are in which it arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: the message whose payload is not complete yet
        self._keys: Mapping[str, Any] | None = None
        self._missing_bytes = 0

    @property
    def is_between_messages(self) -> bool:
        """Whether nothing of a further message has arrived."""
        return self._keys is None and not self._buffer

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete now. Raises FramingError."""
        self._buffer += data
        while True:
            if self._keys is None and not self._read_line():
                return
            assert self._keys is not None
            if len(self._buffer) < self._missing_bytes:
                return
            payload = bytes(self._buffer[: self._missing_bytes])
            del self._buffer[: self._missing_bytes]
            keys, self._keys = self._keys, None
            yield Message(keys, payload)

    def _read_line(self) -> bool:
        end = self._buffer.find(b"\n")
        if end < 0 or end > MAX_LINE_BYTES:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise FramingError(f"a line has more than {MAX_LINE_BYTES} bytes")
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            keys = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FramingError(f"a line is not JSON: {line[:80]!r}") from error
        size = keys.get("bytes", 0) if isinstance(keys, dict) else None
        if type(size) is not int or not 0 <= size <= MAX_PAYLOAD_BYTES:
            raise FramingError(f"a line is no message: {line[:80]!r}")
        self._keys, self._missing_bytes = keys, size
        return True


class MarkerSearch:
    """Finds the line with the marker in what a login shell and the agent print."""

    def __init__(self) -> None:
        self.noise = bytearray()

    def feed(self, data: bytes) -> bytes | None:
        """Return what follows the marker; None: it has not come yet.

        Raises FramingError if too much came without it.
        """
        self.noise += data
        at = self.noise.find(MARKER)
        while at > 0 and self.noise[at - 1] != ord("\n"):
            at = self.noise.find(MARKER, at + 1)
        if at >= 0:
            rest = bytes(self.noise[at + len(MARKER) :])
            del self.noise[at:]
            return rest
        if len(self.noise) > MAX_NOISE_BYTES:
            raise FramingError(f"more than {MAX_NOISE_BYTES} bytes came, but no agent")
        return None
