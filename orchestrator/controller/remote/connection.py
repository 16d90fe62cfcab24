"""A connection to the agent of a host: the user's own ssh, whose stdin and stdout are the channel.

ssh asks for passwords and codes on the terminal by itself, and uses the user's configuration, keys
and open master connections.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Self, TypeAlias

import orchestrator
from orchestrator import config, errors
from orchestrator.config import hosts
from orchestrator.controller.remote import channel as channels
from orchestrator.controller.remote import sharing
from orchestrator.processes import piped, process
from orchestrator.remote import explanations, framing, messages
from orchestrator.remote.framing import Message
from orchestrator.text import escaping


class ConnectionFailedError(errors.OrchestratorError):
    """No agent answered on the host."""

    #: That of ssh.
    exit_code = 255
    #: ssh itself failed, and its last message on stderr says why
    is_of_ssh = False


@contextlib.contextmanager
def understood(name: str, advice: str = "") -> Iterator[None]:
    """Explain what is no message of the protocol. Raises ConnectionFailedError.

    name: of the host. advice: what else to do.
    """
    try:
        yield
    except framing.FramingError as error:
        doctor = shlex.join(["orchestrator", "doctor", "--host", name])
        raise ConnectionFailedError(
            f"{name} sent what is no message of orchestrator ({error}): `{doctor}` looks for the "
            f"reason. {advice}".rstrip()
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remote:
    """A host, by the name that the user gives it."""

    name: str
    host: config.Host

    @property
    def address(self) -> str:
        return self.host.address or self.name


def remote(name: str, configuration: config.Configuration) -> Remote:
    """Return a host of the configuration, else one that ssh knows by this name."""
    if name not in configuration.hosts and not hosts.is_address(name):
        raise errors.OrchestratorError(
            f"--host {escaping.visible(name)}: must be a host or a name of [hosts.NAME]"
        )
    return Remote(name=name, host=configuration.hosts.get(name, config.Host()))


def ssh_command(remote: Remote, command: str | None = None) -> list[str]:
    """Return the words that run a command on the host, by default the agent.

    Nothing of a request is in them: the login shell may be any, also tcsh.
    """
    command = shlex.join(remote.host.remote_command) if command is None else command
    return ["ssh", "-T", *remote.host.ssh_options, "--", remote.address, command]


#: What greeted() waits for.
Started: TypeAlias = piped.Piped | sharing.Shared


class Connection:
    """An open connection; close it, or use it in a `with`."""

    def __init__(
        self,
        started: Started,
        channel: channels.Channel,
        greeting: messages.Greeting,
    ) -> None:
        self._started = started
        self.channel = channel
        self.greeting = greeting

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # With a closed output the host is told; it answers.
        self._started.end(at_once=error is not None and not isinstance(error, BrokenPipeError))


def connect(remote: Remote, environ: Mapping[str, str]) -> Connection:
    """Connect to the agent of a host, through `orchestrator connect` if that runs.

    Raises ConnectionFailedError. It waits for as long as ssh does, which may be asking for a
    password.
    """
    if (shared := sharing.joined(sharing.path_of(remote.name, environ))) is not None:
        # It asks for nothing: one that does not answer hangs.
        with contextlib.suppress(ConnectionFailedError, channels.ClosedError):
            return greeted(remote, shared, time.monotonic() + sharing.ANSWER_SECONDS)
    return connect_by_ssh(remote, environ)


def connect_by_ssh(remote: Remote, environ: Mapping[str, str]) -> Connection:
    """Connect to the agent of a host through a call of ssh. Raises ConnectionFailedError."""
    return greeted(remote, _started(remote, environ, None))


def start(remote: Remote, environ: Mapping[str, str], stderr: IO[bytes]) -> Started:
    """Begin to connect, and return at once; greeted() waits. Raises ConnectionFailedError.

    stderr: where the messages of ssh go.
    """
    shared = sharing.joined(sharing.path_of(remote.name, environ))
    return shared or _started(remote, environ, stderr)


def _started(remote: Remote, environ: Mapping[str, str], stderr: IO[bytes] | None) -> Started:
    try:
        return piped.Piped(ssh_command(remote), environ, stderr)
    except process.CommandNotFound as error:
        raise ConnectionFailedError(f"{error}. --host needs the OpenSSH client") from error


def greeted(remote: Remote, started: Started, deadline: float | None = None) -> Connection:
    """Return the connection after the agent's greeting. Raises ConnectionFailedError.

    deadline: by time.monotonic(); then ClosedError is raised.
    """
    try:
        channel = channels.Channel(started.stdout, started.stdin)
        greeting = _greeting(remote, started, channel, deadline)
        protocol = messages.common_protocol(messages.PROTOCOLS, greeting.protocols)
        if protocol is None:
            version = orchestrator.__version__
            problem = explanations.no_common_protocol(remote.name, version, greeting)
            raise ConnectionFailedError(str(problem))
    except BaseException:
        started.end(at_once=True)
        raise
    hello = {"type": "hello", "protocol": protocol, "version": orchestrator.__version__}
    channel.send(Message(hello))
    return Connection(started, channel, greeting)


def _greeting(
    remote: Remote, started: Started, channel: channels.Channel, deadline: float | None
) -> messages.Greeting:
    search = framing.MarkerSearch()
    received: list[Message] = []

    def read() -> bytes:
        return channel.read_raw(None if deadline is None else max(0.0, deadline - time.monotonic()))

    try:
        rest: bytes | None = None
        while rest is None:
            if not (data := read()):
                raise channels.ClosedError
            rest = search.feed(data)
        received = channel.decoded(rest)
        while not received:
            received = channel.decoded(read())
        return messages.Greeting.of(received[0])
    except channels.ClosedError:
        if deadline is not None and time.monotonic() >= deadline:
            raise
        code = started.end()
        problem = explanations.no_agent(remote.name, remote.address, code)
        shown = explanations.instead(remote.name, bytes(search.noise))
        failed = ConnectionFailedError(f"{problem}{shown}")
        failed.is_of_ssh = code == explanations.OF_SSH
        raise failed from None
    except framing.FramingError as error:
        text = f"the agent on {remote.name} does not speak our protocol: {error}"
        if (size_bytes := len(search.noise)) > framing.MAX_NOISE_BYTES:
            text = explanations.too_much_noise(remote.name, size_bytes)
            text += explanations.instead(remote.name, bytes(search.noise))
        raise ConnectionFailedError(text) from error
