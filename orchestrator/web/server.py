"""The server's socket, and its life from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import fcntl
import logging
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import uvicorn
from uvicorn.protocols.http import h11_impl

from orchestrator import errors, files
from orchestrator.processes import peers
from orchestrator.web.access import security

#: The kernel's limit for the path of a Unix socket (man 7 unix), less the final NUL.
_MAX_PATH_BYTES = 107
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Between two looks at whether the socket still exists.
WATCH_SECONDS = 2.0
#: Answers that are not complete then are cut off.
_STOP_SECONDS = 2
_BACKLOG = 128


def default_socket(environ: Mapping[str, str]) -> Path:
    """Return the path of the socket: in the user's runtime folder, or else in /tmp."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.path.isdir(runtime):
        return Path(runtime) / "orchestrator" / "web.sock"
    return Path(f"/tmp/orchestrator-{os.geteuid()}/web.sock")


@dataclasses.dataclass
class UnixSocket:
    """A Unix socket that only this user can open. One server at a time has it."""

    path: Path
    #: its folder is ours alone, and gets mode 0700
    is_default: bool = False
    _lock: int = -1
    _identity: tuple[int, int] = (0, 0)

    def bind(self) -> socket.socket:
        """Return the listening socket. Raises ConflictError if another server has it."""
        if len(os.fsencode(self.path)) > _MAX_PATH_BYTES:
            raise errors.OrchestratorError(
                f"The path {self.path} is too long for a socket (at most {_MAX_PATH_BYTES} bytes). "
                "Choose another: --socket PATH"
            )
        try:
            self._make_folder()
            self._take_lock()
            return self._listen()
        except files.PrivateFolderError as error:
            raise errors.OrchestratorError(str(error.strerror)) from error
        except OSError as error:
            raise errors.OrchestratorError(
                f"The socket {self.path} cannot be created ({error.strerror}). "
                "Choose another: --socket PATH"
            ) from error

    def exists(self) -> bool:
        """Return whether the path still leads to this socket."""
        return _identity(self.path) == self._identity

    def remove(self) -> None:
        """Remove the socket if it is this one, and let other servers have the path."""
        if self.exists():
            with contextlib.suppress(OSError):
                self.path.unlink()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _make_folder(self) -> None:
        folder = self.path.parent
        files.make_private_folder(folder, setting="--socket")
        if self.is_default:
            folder.chmod(0o700)

    def _take_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            os.close(self._lock)
            self._lock = -1
            raise errors.ConflictError(
                f"Another server uses {self.path} (process {process}). Open that one, or choose "
                "another socket: --socket PATH"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _listen(self) -> socket.socket:
        with contextlib.suppress(FileNotFoundError):
            # Of a server that was killed: whoever has the lock is the only one.
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise OSError(errno.EEXIST, "a file that is not a socket has its name")
            self.path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        umask = os.umask(0o177)
        try:
            listening.bind(str(self.path))
        except BaseException:
            listening.close()
            raise
        finally:
            os.umask(umask)
        listening.listen(_BACKLOG)
        self._identity = _identity(self.path)
        return listening


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def bind_port(port: int) -> socket.socket:
    """Return a socket that listens on the loopback interface; port 0: a free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno != errno.EADDRINUSE:
            raise errors.OrchestratorError(
                f"Port {port} cannot be used ({error.strerror})."
            ) from error
        raise errors.ConflictError(
            f"Port {port} is in use by another program. Choose another, or a free one: --port 0"
        ) from error
    return listening


class _OwnUserProtocol(h11_impl.H11Protocol):
    """HTTP for connections of this user; others are closed before a byte is read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if peers.uid_of_socket(transport.get_extra_info("socket")) != os.geteuid():
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # None: it was refused.
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is not None:
            super().data_received(data)


class _Server(uvicorn.Server):
    """uvicorn without its ten wake-ups per second, and with our signals."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def add(self, listening: socket.socket) -> None:
        """Accept connections from one more socket."""

        def protocol() -> asyncio.Protocol:
            return _OwnUserProtocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(protocol, sock=listening))


async def serve(
    application: security.Application,
    listening: socket.socket,
    unix_socket: UnixSocket | None,
    *,
    running: Callable[[asyncio.Event], contextlib.AbstractAsyncContextManager[object]],
    report: Callable[[str], object],
) -> None:
    """Answer requests until SIGINT, SIGTERM or SIGHUP.

    running: entered with the event that is set at the end, and left after the last answer
    """
    # Pages report errors.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    stopping = asyncio.Event()
    config = uvicorn.Config(
        application,
        http=_OwnUserProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    server = _Server(config, stopping)
    with _stop_on_signals(stopping):
        async with running(stopping), asyncio.TaskGroup() as tasks:
            if unix_socket is not None:
                tasks.create_task(_keep(unix_socket, server, stopping, report))
            await server.serve(sockets=[listening])


@contextlib.contextmanager
def _stop_on_signals(stopping: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # nohup ignores SIGHUP, and a shell SIGINT for a command in the background.
    handled = [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
    for each in handled:
        loop.add_signal_handler(each, stopping.set)
    try:
        yield
    finally:
        for each in handled:
            loop.remove_signal_handler(each)


async def _keep(
    unix_socket: UnixSocket,
    server: _Server,
    stopping: asyncio.Event,
    report: Callable[[str], object],
) -> None:
    """Create the socket again if it vanishes: logind removes /run/user/UID at the last logout."""
    error = ""
    while not await _wait(stopping, WATCH_SECONDS):
        if unix_socket.exists():
            continue
        try:
            await server.add(unix_socket.bind())
        except errors.OrchestratorError as exc:
            if str(exc) != error:
                report(str(exc))
            error = str(exc)
        else:
            report(f"The socket {unix_socket.path} was removed; it was created again.")
            error = ""


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
