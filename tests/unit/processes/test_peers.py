"""The owner of a connection: from the kernel's tables, and of real sockets."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from orchestrator.processes import peers

CLIENT, SERVER = ("127.0.0.1", 0xC350), ("127.0.0.1", 0x223D)
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  ...\n"
LINE = "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {uid}        0 1 1\n"
LOCAL = "0100007F" if sys.byteorder == "little" else "7F000001"
MAPPED = (
    "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"
) + LOCAL


def line(local: str, remote: str, *, state: str = "01", uid: int = 2001) -> str:
    return LINE.format(local=local, remote=remote, state=state, uid=uid)


def test_owner_of_the_clients_socket() -> None:
    # The server's own socket has the same endpoints the other way round.
    table = (
        HEAD
        + line(f"{LOCAL}:223D", f"{LOCAL}:C350", uid=7)
        + line(f"{LOCAL}:C350", f"{LOCAL}:223D")
    )
    assert peers.uid_in_tables([table, HEAD], CLIENT, SERVER) == 2001


def test_owner_of_a_socket_of_ipv6() -> None:
    table = HEAD + line(f"{MAPPED}:C350", f"{MAPPED}:223D", uid=2002)
    assert peers.uid_in_tables([HEAD, table], CLIENT, SERVER) == 2002


@pytest.mark.parametrize("state", ["04", "05", "06", "08", "0A"])
def test_sockets_that_may_have_lost_their_process(state: str) -> None:
    # The kernel shows 0, root, as their owner.
    table = HEAD + line(f"{LOCAL}:C350", f"{LOCAL}:223D", state=state, uid=0)
    assert peers.uid_in_tables([table], CLIENT, SERVER) is None


@pytest.mark.parametrize("text", ["", HEAD, HEAD + "garbage\n", HEAD + "0: a b 01\n"])
def test_unknown(text: str) -> None:
    assert peers.uid_in_tables([text], CLIENT, SERVER) is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_real_connection(family: socket.AddressFamily) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        host = "127.0.0.1" if family is socket.AF_INET else "::ffff:127.0.0.1"
        with socket.socket(family) as client:
            client.connect((host, port))
            accepted, _ = listening.accept()
            with accepted:
                assert peers.uid_of_socket(accepted) == os.geteuid()


def test_real_unix_socket() -> None:
    client, server = socket.socketpair(socket.AF_UNIX)
    with client, server:
        assert peers.uid_of_socket(server) == os.geteuid()
