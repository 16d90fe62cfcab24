"""Runs a command on a host, and stays with it when the connection breaks."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import select
import signal
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from orchestrator import errors
from orchestrator.controller.remote import channel as channels
from orchestrator.controller.remote import connection as connections
from orchestrator.controller.remote import pending, settling
from orchestrator.controller.remote.connection import Connection, Remote
from orchestrator.remote import framing, messages
from orchestrator.remote.framing import Message
from orchestrator.text import escaping

if TYPE_CHECKING:
    from orchestrator.controller.remote import transfer

#: What fits into a pipe that is ready (man 7 pipe, PIPE_BUF).
_WRITE_BYTES = 4096
_WAITING_BYTES = 1024 * 1024
_ACK_BYTES = 1024 * 1024
_TICK_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
#: The first Ctrl-C interrupts the command there, the second one ends it, the third ends us.
_INTERRUPTS = 2


class LinkLostError(connections.ConnectionFailedError):
    """The connection broke, and did not come back."""


class Signals:
    """Ctrl-C and changes of the window's size as something to read, not as exceptions."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self._fd_before = signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGWINCH):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._fd_before)
        os.close(self.descriptor)
        os.close(self._end)

    def received(self) -> list[int]:
        """Return the signals that came since the last call."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self.descriptor, 4096))
        return []


class Output:
    """What the command printed, on its way to our own stdout and stderr."""

    def __init__(self, descriptors: Mapping[int, int]) -> None:
        """descriptors: by the number of the stream, 1 and 2."""
        self._descriptors = descriptors
        #: by descriptor; in a pipe or a file the bytes are exact
        self._terminals = {
            number: escaping.Terminal() for number in descriptors.values() if os.isatty(number)
        }
        self._pieces: collections.deque[tuple[int, bytes]] = collections.deque()
        self._waiting_bytes = 0

    def add(self, stream: object, data: bytes) -> None:
        """Queue a piece of output; of a stream that nobody reads it is dropped."""
        descriptor = self._descriptors.get(stream) if isinstance(stream, int) else None
        if descriptor is not None:
            if descriptor in self._terminals:
                data = self._terminals[descriptor].feed(data)
            self._queue(descriptor, data)

    def _queue(self, descriptor: int, data: bytes) -> None:
        if data:
            self._pieces.append((descriptor, data))
            self._waiting_bytes += len(data)

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes >= _WAITING_BYTES

    @property
    def waits_for(self) -> list[int]:
        """The descriptor that is written next."""
        return [self._pieces[0][0]] if self._pieces else []

    def write(self) -> None:
        """Write as much as certainly does not wait. Raises BrokenPipeError."""
        descriptor, data = self._pieces[0]
        # ssh may have made our stderr non-blocking.
        with contextlib.suppress(BlockingIOError):
            written = os.write(descriptor, data[:_WRITE_BYTES])
            self._waiting_bytes -= written
            self._pieces.popleft()
            if rest := data[written:]:
                self._pieces.appendleft((descriptor, rest))

    def write_all(self) -> None:
        """Write the rest, however long it takes."""
        for descriptor, terminal in self._terminals.items():
            self._queue(descriptor, terminal.feed(b"", is_last=True))
        while self._pieces:
            select.select([], self.waits_for, [])
            self.write()


@dataclasses.dataclass(kw_only=True)
class Client:
    """Runs commands on one host."""

    remote: Remote
    pending: pending.Folder
    environ: Mapping[str, str]
    report: Callable[[str], None]
    #: surrounds what may take long
    activity: Callable[[str], contextlib.AbstractContextManager[object]]
    #: columns and lines of our terminal
    size: Callable[[], tuple[int, int]]

    def run(self, run: messages.Run, output: Output, tree: transfer.Tree | None = None) -> int:
        """Run a command exactly once, and return its exit code.

        tree: the snapshot that run.tree names. Raises ConnectionFailedError, LinkLostError, and
        OrchestratorError if the host refuses it.
        """
        connection = connections.connect(self.remote, self.environ)
        try:
            with connections.understood(self.remote.name):
                settling.settle(connection, self.remote, self.pending, self.report)
        except channels.ClosedError:
            # Nothing of this command was sent; _Call connects again.
            pass
        except BaseException as error:
            connection.__exit__(type(error), error, None)
            raise
        with self._waiting(run, connection):
            code = _Call(self, run, output, connection.greeting, tree).to_end(connection)
            if run.changes:
                self.pending.remove(run.request)
            return code

    @contextlib.contextmanager
    def _waiting(self, run: messages.Run, connection: Connection) -> Iterator[None]:
        if not run.changes:
            yield
            return
        stored = pending.Pending(
            request=run.request,
            words=list(run.words),
            at=time.time(),
            store=connection.greeting.store,
            host=connection.greeting.host,
        )
        with self.pending.waiting(stored):
            yield


class _Call:
    def __init__(
        self,
        client: Client,
        run: messages.Run,
        output: Output,
        greeting: messages.Greeting,
        tree: transfer.Tree | None,
    ) -> None:
        self._tree = tree
        self._client, self._run, self._output = client, run, output
        self._store = greeting.store
        self._host = greeting.host
        self._spool = framing.Decoder()
        self._offset = self._acknowledged = 0
        self._interrupts = 0

    def to_end(self, connection: Connection) -> int:
        """Pass the output on until the exit code comes, over as many connections as it takes."""
        while True:
            try:
                with connections.understood(self._name, self._advice), connection:
                    return self._follow(connection.channel)
            except channels.ClosedError:
                pass
            connection = self._connect_again()

    @property
    def _advice(self) -> str:
        """What to do if it is not known what became of the command."""
        if self._run.changes:
            return f"The next `orchestrator --host {self._name}` says what became of the command."
        return "Call the command again."

    @property
    def _name(self) -> str:
        return self._client.remote.name

    def _follow(self, channel: channels.Channel) -> int:
        if self._tree is not None:
            # It loads the database's libraries, and few commands have a tree.
            from orchestrator.controller.remote import transfer

            with self._client.activity(f"Sending the code to {self._name}"):
                transfer.send(channel, self._tree, self._run.request)
            self._tree = None
        channel.send(dataclasses.replace(self._run, offset=self._offset).message())
        heard_at = said_at = time.monotonic()
        with Signals() as signals:
            while True:
                received, ready = channel.exchange(
                    _TICK_SECONDS,
                    readable=[signals.descriptor],
                    writable=self._output.waits_for,
                    is_reading=not self._output.is_full,
                )
                now = time.monotonic()
                if received or self._output.is_full:
                    heard_at = now
                elif now - heard_at > messages.SILENT_SECONDS:
                    raise channels.ClosedError
                if now - said_at >= messages.ALIVE_SECONDS:
                    said_at = now
                    channel.send(Message({"type": "alive"}))
                for number in signals.received():
                    self._pass_on(number, channel)
                code = next((code for code in map(self._take, received) if code is not None), None)
                if code is not None:
                    break
                if ready.intersection(self._output.waits_for):
                    self._write(channel)

        # Without our signals: Ctrl-C ends us while nobody reads our output.
        self._finish(channel)
        return code

    def _take(self, message: Message) -> int | None:
        """Use a message from the host; return the exit code if it has come."""
        if message.keys.get("request") != self._run.request:
            if message.kind == "refused":
                raise errors.OrchestratorError(f"{self._name}: {message.text('reason')}")
            return None
        match message.kind:
            case "output":
                if message.number("offset") != self._offset:
                    raise framing.FramingError(f"output at {message.number('offset')}")
                self._offset += len(message.payload)
                for piece in self._spool.feed(message.payload):
                    self._output.add(piece.keys.get("stream"), piece.payload)
            case "ended":
                return messages.exit_code(message)
            case "standing":
                self._output.write_all()
                if self._run.changes:
                    self._client.pending.remove(self._run.request)
                raise errors.OrchestratorError(
                    settling.not_ended(message, self._name, "the command")
                )
            case "refused":
                raise errors.OrchestratorError(f"{self._name}: {message.text('reason')}")
        return None

    def _finish(self, channel: channels.Channel) -> None:
        self._output.write_all()
        channel.send(messages.of_request("done", self._run.request))
        with contextlib.suppress(channels.ClosedError, framing.FramingError):
            channel.exchange(0)

    def _write(self, channel: channels.Channel) -> None:
        try:
            self._output.write()
        except BrokenPipeError:
            # Nobody reads our output, as in `orchestrator --host NAME logs 1 | head`.
            channel.send(messages.of_request("control", self._run.request, event="end"))
            with contextlib.suppress(channels.ClosedError, framing.FramingError):
                channel.exchange(0)
            raise
        if not self._output.waits_for and self._offset - self._acknowledged >= _ACK_BYTES:
            self._acknowledged = self._offset
            channel.send(messages.of_request("ack", self._run.request, offset=self._offset))

    def _pass_on(self, number: int, channel: channels.Channel) -> None:
        if number == signal.SIGWINCH:
            columns, lines = self._client.size()
            channel.send(
                messages.of_request(
                    "control", self._run.request, event="size", columns=columns, lines=lines
                )
            )
        elif number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > _INTERRUPTS:
                self._client.report(self._advice)
                raise KeyboardInterrupt
            channel.send(messages.of_request("control", self._run.request, event="interrupt"))

    def _connect_again(self) -> Connection:
        """Connect until it succeeds or the time is over. Raises LinkLostError."""
        limit_seconds = self._client.remote.host.reconnect_seconds
        deadline = time.monotonic() + limit_seconds
        pause_seconds = _FIRST_PAUSE_SECONDS
        reason = "the connection is not tried again"
        if limit_seconds:
            self._client.report(f"The connection to {self._name} broke. Connecting again ...")
        while (left_seconds := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_seconds, left_seconds))
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            try:
                connection = connections.connect(self._client.remote, self._client.environ)
            except connections.ConnectionFailedError as error:
                reason = str(error)
                continue
            if connection.greeting.store == self._store:
                return connection
            reason = (
                f"{connection.greeting.host} answered, whose state folder is not the one of "
                f"{self._host}"
            )
            with connection:
                pass
        raise LinkLostError(f"the connection to {self._name} broke ({reason}). {self._advice}")
