"""The web pages of a host on this computer: `orchestrator --host NAME web`.

The server runs on the host and listens on a socket there. Its output says which; a second ssh
forwards it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Self

from orchestrator import errors
from orchestrator.controller.remote import client, tunnel
from orchestrator.controller.remote.connection import Remote
from orchestrator.text import escaping

#: What `orchestrator web` prints.
_FORWARD = re.compile(rb"^  ssh -N -L \d+:(/.+) \S+$", re.MULTILINE)
#: ssh would replace ${NAME} by a variable of this computer, %h by a name, and split at a colon.
_SOCKET = re.compile(r"/[A-Za-z0-9_./@+,=-]+")
#: It comes in the first lines.
_MAX_BYTES = 64 * 1024


class Pages(client.Output):
    """The output of the server: when it names its socket, the socket is forwarded."""

    def __init__(
        self,
        descriptors: Mapping[int, int],
        remote: Remote,
        environ: Mapping[str, str],
        report: Callable[[str], None],
    ) -> None:
        super().__init__(descriptors)
        self._remote, self._environ, self._report = remote, environ, report
        self._text = b""
        self._tunnel: tunnel.Tunnel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._tunnel is not None:
            self._tunnel.close()

    def add(self, stream: object, data: bytes) -> None:
        """Take a piece of output; stdout only says how to forward the socket by hand."""
        if stream != 1:
            super().add(stream, data)
            return
        if self._tunnel is not None:
            return
        self._text = (self._text + data)[-_MAX_BYTES:]
        if match := _FORWARD.search(self._text):
            path = match[1].decode(errors="replace")
            if _SOCKET.fullmatch(path) is None:
                raise errors.OrchestratorError(
                    f"ssh cannot forward the socket {escaping.visible(path)} of {self._remote.name}"
                    ": its path may have only letters, digits and _./@+,=-; set XDG_RUNTIME_DIR "
                    "there to another folder"
                )
            self._tunnel = tunnel.Tunnel(self._remote, self._environ, path)
            self._report(f"Open http://localhost:{self._tunnel.port}/ (Ctrl-C ends the server)")
