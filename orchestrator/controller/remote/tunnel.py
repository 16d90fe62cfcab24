"""A port of this computer that only its user can open, and behind it the socket of a host.

A port that ssh itself listens on could be used by all users of this computer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from orchestrator.controller.remote.connection import Remote
from orchestrator.processes import peers, piped

_PORT = 8765
_READ_BYTES = 64 * 1024
#: A browser waits for so long until ssh listens.
_START_SECONDS = 20.0
_POLL_SECONDS = 0.1


class Tunnel:
    """The port and ssh; close it."""

    def __init__(self, remote: Remote, environ: Mapping[str, str], path: str) -> None:
        """Listen, and start ssh; path: of the socket on the host."""
        self._server = _listening()
        self.port: int = self._server.getsockname()[1]
        # The path of a socket is short: not in TMPDIR.
        self._folder = tempfile.mkdtemp(prefix="orchestrator-", dir="/tmp")
        self._socket = Path(self._folder, "web.sock")
        self._ssh = piped.Piped(forward_command(remote, self._socket, path), environ)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End ssh and all connections."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._ssh.end(at_once=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        # Until the socket is closed.
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._server.accept()
                if peers.uid_of_socket(connected) == os.geteuid():
                    threading.Thread(target=self._join, args=(connected,), daemon=True).start()
                else:
                    connected.close()

    def _join(self, connected: socket.socket) -> None:
        with connected, socket.socket(socket.AF_UNIX) as inner:
            if not self._reached(inner):
                return
            back = threading.Thread(target=_pump, args=(inner, connected), daemon=True)
            back.start()
            _pump(connected, inner)
            back.join()

    def _reached(self, inner: socket.socket) -> bool:
        """Connect to ssh, which may still ask for a password; return whether it listens."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                inner.connect(str(self._socket))
                return True
            time.sleep(_POLL_SECONDS)
        return False


def forward_command(remote: Remote, ours: Path, path: str) -> list[str]:
    """Return the words that forward a socket of this computer to a socket on the host."""
    options = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"{ours}:{path}"]
    return ["ssh", *options, *remote.host.ssh_options, "--", remote.address]


def _listening() -> socket.socket:
    """Listen on the usual port, or on another one if it is in use."""
    with contextlib.suppress(OSError):
        return socket.create_server(("127.0.0.1", _PORT))
    return socket.create_server(("127.0.0.1", 0))


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_READ_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
