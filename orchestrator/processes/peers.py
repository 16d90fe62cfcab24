"""Which user is at the other end of a connection on this host.

A port on the loopback interface can be reached by all users of a login node. The kernel lists the
owner of each socket in /proc/net/tcp and tcp6. Behind `ssh -L` the peer is an sshd process of the
user who logged in.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

#: IP address and port
Endpoint = tuple[str, int]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: In other states the socket may have lost its process, and its owner is shown as 0.
_ESTABLISHED = "01"
_UCRED = struct.Struct("iII")
#: The kernel does not list all connections at one moment.
_READS = 3


def uid_of_socket(peer: socket.socket) -> int | None:
    """Return the user at the other end of a connected socket (IPv4 or Unix); None: unknown."""
    if peer.family == socket.AF_UNIX:
        # struct ucred: pid, uid, gid
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        return int(_UCRED.unpack(credentials)[1])
    with contextlib.suppress(OSError):
        client, server = peer.getpeername(), peer.getsockname()
        for _ in range(_READS):
            uid = uid_in_tables((path.read_text() for path in _TABLES), client, server)
            if uid is not None:
                return uid
    return None


def uid_in_tables(tables: Iterable[str], client: Endpoint, server: Endpoint) -> int | None:
    """Return the owner of the client's socket from the content of /proc/net/tcp and tcp6.

    None: no established connection between these IPv4 endpoints is listed.
    """
    forms = zip(_hex_forms(client), _hex_forms(server), strict=True)
    wanted = {f"{local} {remote} {_ESTABLISHED}" for local, remote in forms}
    for table in tables:
        for line in table.splitlines()[1:]:
            # sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid ...
            fields = line.split(None, 8)
            if len(fields) > 8 and " ".join(fields[1:4]) in wanted:
                return int(fields[7])
    return None


def _hex_forms(endpoint: Endpoint) -> tuple[str, str]:
    """Return an IPv4 endpoint as in tcp, and as in tcp6 for a socket of IPv6 (::ffff:a.b.c.d)."""
    address, port = endpoint
    # The kernel prints each word of an address as a number in the byte order of the machine.
    words = [socket.inet_aton(address)]
    mapped = [bytes(4), bytes(4), b"\0\0\xff\xff", *words]
    plain, in_tcp6 = (
        "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in parts)
        for parts in (words, mapped)
    )
    return f"{plain}:{port:04X}", f"{in_tcp6}:{port:04X}"
