"""One connection for later calls: `orchestrator connect NAME`, for clients without ssh's master.

It listens on a socket that only this user can open. A call that connects there speaks the same
protocol as with an agent; its messages are passed on by their request.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from orchestrator import errors, files
from orchestrator.config import hosts
from orchestrator.controller.remote import channel as channels
from orchestrator.processes import peers
from orchestrator.remote import messages
from orchestrator.remote.framing import FramingError, Message

#: The process that shares its connection answers within this time, or hangs.
ANSWER_SECONDS = 5.0
_TICK_SECONDS = 1.0
_BACKLOG = 32
#: The path of a socket has at most 107 bytes (man 7 unix).
_MAX_PATH_BYTES = 107


def path_of(name: str, environ: Mapping[str, str]) -> Path:
    """Return the path of the socket for a host."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) if runtime.startswith("/") else Path(f"/tmp/orchestrator-{os.getuid()}")
    return folder / "orchestrator" / f"{hosts.file_name(name)}.sock"


class Shared:
    """The end of a call: what piped.Piped is for ssh."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.stdin = self.stdout = connected.fileno()

    def stop(self) -> None:
        """Let who reads see the end of the stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self, *, at_once: bool = False) -> int:
        """Close it."""
        self._socket.close()
        return 0


def joined(path: Path) -> Shared | None:
    """Connect to a shared connection; None if there is none that is this user's own."""
    if not path.exists() or files.exposure(path) is not None:
        return None
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(ANSWER_SECONDS)
    try:
        connected.connect(str(path))
        # In /tmp another user may make the folder between the check and the call.
        is_own = peers.uid_of_socket(connected) == os.geteuid()
    except OSError:
        # Of a process that was killed.
        is_own = False
    if not is_own:
        connected.close()
        return None
    return Shared(connected)


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen on the socket; it is removed afterwards. Raises OrchestratorError."""
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise errors.OrchestratorError(f"{path} is too long for a socket: set XDG_RUNTIME_DIR")
    try:
        files.make_private_folder(path.parent, setting="XDG_RUNTIME_DIR")
    except files.PrivateFolderError as error:
        raise errors.OrchestratorError(str(error.strerror)) from error
    if (other := joined(path)) is not None:
        other.end()
        raise errors.ConflictError(f"another `orchestrator connect` already listens on {path}")
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        umask = os.umask(0o177)
        try:
            server.bind(str(path))
        finally:
            os.umask(umask)
        server.listen(_BACKLOG)
        server.setblocking(False)
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)


class Proxy:
    """Passes messages between the calls and the host, until the connection ends."""

    def __init__(
        self,
        server: socket.socket,
        upstream: channels.Channel,
        greeting: messages.Greeting,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._server, self._upstream, self._greeting = server, upstream, greeting
        self._is_stopped = is_stopped
        self._calls: dict[int, tuple[socket.socket, channels.Channel]] = {}
        #: the call of each request
        self._owners: dict[str, int] = {}

    def serve(self, stop: int) -> None:
        """Serve until is_stopped(); `stop` can be read then. Raises ClosedError."""
        heard_at = said_at = time.monotonic()
        try:
            while not self._is_stopped():
                readable = [self._server.fileno(), stop, *self._calls]
                unsent = [number for number, (_, call) in self._calls.items() if call.has_unsent]
                received, ready = self._upstream.exchange(
                    _TICK_SECONDS, readable=readable, writable=unsent
                )
                now = time.monotonic()
                if received:
                    heard_at = now
                elif now - heard_at > messages.SILENT_SECONDS:
                    raise channels.ClosedError
                if now - said_at >= messages.ALIVE_SECONDS:
                    said_at = now
                    self._say_alive()
                for message in received:
                    self._down(message)
                if self._server.fileno() in ready:
                    self._accept()
                for number in ready.intersection(self._calls):
                    self._serve_call(number)
        finally:
            for connected, _ in self._calls.values():
                connected.close()

    def _say_alive(self) -> None:
        alive = Message({"type": "alive"})
        self._upstream.send(alive)
        for number in list(self._calls):
            self._calls[number][1].send(alive)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connected, _ = self._server.accept()
            call = channels.Channel(connected.fileno(), connected.fileno())
            call.send_raw(self._greeting.encoded())
            self._calls[connected.fileno()] = connected, call

    def _serve_call(self, number: int) -> None:
        try:
            received, _ = self._calls[number][1].exchange(0)
        except (channels.ClosedError, FramingError):
            self._drop(number)
            return
        for message in received:
            request = message.keys.get("request")
            if isinstance(request, str):
                self._owners[request] = number
                if message.kind == "done":
                    del self._owners[request]
                self._upstream.send(message)

    def _drop(self, number: int) -> None:
        connected, _ = self._calls.pop(number)
        connected.close()
        for request, owner in list(self._owners.items()):
            if owner == number:
                del self._owners[request]
                # The host need not send more of it; the command itself goes on.
                self._upstream.send(messages.of_request("done", request))

    def _down(self, message: Message) -> None:
        call = self._calls.get(self._owners.get(str(message.keys.get("request")), -1))
        if call is not None:
            call[1].send(message)
