"""Receivers: what they are given, and what is said of what goes wrong."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest

from orchestrator import config, notices, receivers
from tests import receivers as servers

AT = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
NOTICE = notices.Notice(key="end:@7:0", kind="failure", subject="4711 wrn: FAILED", body="æ\n.\nb")
MESSAGE = notices.message([NOTICE], "x", "abcd", AT)


def send(folder: Path, **fields: object) -> str:
    channel = config.Channel(**{"timeout_seconds": 2, **fields})  # type: ignore[arg-type]
    return receivers.send(channel, MESSAGE, {"HOME": str(folder), "PATH": os.environ["PATH"]})


def mail(port: int, **fields: object) -> dict[str, object]:
    given = {"kind": "email", "host": "127.0.0.1", "port": port, "security": "none"}
    return {**given, "sender": "o@lab", "to": ("a@lab", "b@lab"), **fields}


def test_mail(tmp_path: Path) -> None:
    with servers.mail_server(servers.free_port()) as server:
        assert send(tmp_path, **mail(server.port)) == ""
        server.answers = ["554 no spam"]
        with pytest.raises(receivers.ReceiverError) as caught:
            send(tmp_path, **mail(server.port))
        # It has no TLS, and nothing is said in the clear instead.
        with pytest.raises(receivers.ReceiverError, match="STARTTLS extension not supported"):
            send(tmp_path, **mail(server.port, security="starttls"))
    assert (str(caught.value), caught.value.may_have_it) == (
        f"127.0.0.1:{server.port}: 554 no spam",
        False,
    )
    (got,) = server.got
    assert got["Message-ID"] == f"<{MESSAGE.id}>"
    assert got.get_content().replace("\r", "") == "æ\n.\nb\n"


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(receivers.ReceiverError, match="timed out") as by_mail:
            send(tmp_path, **mail(port), timeout_seconds=1)
        with pytest.raises(receivers.ReceiverError, match="timed out") as by_web:
            url = f"http://127.0.0.1:{port}/x"
            send(tmp_path, kind="webhook", url=url, timeout_seconds=1)
    assert by_mail.value.may_have_it is False, "it had not even greeted"
    assert by_web.value.may_have_it is True


def test_a_command_gets_it_on_stdin(tmp_path: Path) -> None:
    assert send(tmp_path, kind="command", command=("sh", "-c", "cat > $HOME/got")) == ""
    got = json.loads((tmp_path / "got").read_text())
    assert (got["id"], got["items"][0]["body"]) == (MESSAGE.id, "æ\n.\nb")
    assert send(tmp_path, kind="command", command=("true",)) == "", "which reads nothing"
    for argv, told, may_have_it in (
        (("sh", "-c", "echo no >&2; exit 3"), "sh ended with 3 no", False),
        (("sleep", "60"), "sleep had not ended after 2 s", True),
        (("/no/such",), "/no/such could not be started: [Errno 2] No such file", False),
    ):
        with pytest.raises(receivers.ReceiverError) as caught:
            send(tmp_path, kind="command", command=argv)
        assert str(caught.value).startswith(told)
        assert caught.value.may_have_it is may_have_it


def test_what_cannot_be_sent_is_told_without_its_secret(tmp_path: Path) -> None:
    with pytest.raises(receivers.ReceiverError) as caught:
        send(tmp_path, kind="webhook", url=f"http://{'a' * 70}.example/secret")
    assert str(caught.value) == (
        "an address, a user or a password has characters that cannot be sent (UnicodeError)"
    )
