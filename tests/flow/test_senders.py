"""Senders: delivered content and error messages."""

from __future__ import annotations

import base64
import contextlib
import datetime
import html
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import config
from orchestrator.controller.notices import senders
from orchestrator.notices import records, redaction, texts
from tests import receivers as servers

AT = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
NOTICE = records.Notice(key="end:@7:0", kind="failure", subject="4711 wrn: FAILED", body="æ\n.\nb")
MESSAGE = texts.message([NOTICE], "x", "abcd", AT)


def send(folder: Path, **fields: object) -> str:
    channel = config.Channel(**{"timeout_seconds": 2, **fields})  # type: ignore[arg-type]
    return senders.send(channel, MESSAGE, {"HOME": str(folder), "PATH": os.environ["PATH"]})


def mail(port: int, **fields: object) -> dict[str, object]:
    options = {"kind": "email", "host": "127.0.0.1", "port": port, "security": "none"}
    return {**options, "sender": "o@lab", "to": ("a@lab", "b@lab"), **fields}


def test_mail(tmp_path: Path) -> None:
    with servers.mail_server(servers.free_port()) as server:
        assert send(tmp_path, **mail(server.port)) == ""
        server.answers = ["554 no spam"]
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, **mail(server.port))
        # The server has no TLS, and nothing is sent unencrypted.
        with pytest.raises(senders.SendError, match="STARTTLS extension not supported"):
            send(tmp_path, **mail(server.port, security="starttls"))
    assert (str(caught.value), caught.value.may_have_it) == (
        f"127.0.0.1:{server.port}: 554 no spam",
        False,
    )
    (mail_sent,) = server.received
    assert mail_sent["Message-ID"] == f"<{MESSAGE.id}>"
    assert mail_sent.get_content().replace("\r", "") == "æ\n.\nb\n"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate")
    file = tmp_path_factory.mktemp("tls") / "mail.pem"
    names = "subjectAltName=IP:127.0.0.1"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    made += ["-subj", "/CN=mail", "-addext", names, "-addext", usage]
    subprocess.run([*made, "-keyout", file, "-out", f"{file}.crt"], check=True, capture_output=True)
    with file.open("a") as both:
        both.write(Path(f"{file}.crt").read_text())
    return file


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_mail_with_tls_and_a_login(
    tmp_path: Path, certificate: Path, security: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "mail.password"
    secret.touch(mode=0o600)
    secret.write_text("wr0ng\n")
    port = servers.free_port()
    channel = mail(port, security=security, user="alice", password_file=str(secret))
    where = f"127.0.0.1:{port}"

    def refused(**fields: object) -> str:
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, **{**channel, **fields})
        # So it stays in the outbox, and is sent again.
        assert caught.value.may_have_it is False
        return str(caught.value)

    # A busy machine needs more than the usual grace to name the step that took too long.
    monkeypatch.setattr(senders, "_GRACE_SECONDS", 10)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with servers.mail_server(
        port, security=security, certificate=certificate, password="r1ght"
    ) as server:
        untrusted = refused()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        misnamed = refused(host="localhost")
        wrong = refused()
        other = {"starttls": "tls", "tls": "starttls"}[security]
        no_tls = refused(security=other, timeout_seconds=0.3)
        assert server.received == []
        secret.write_text("r1ght\n")
        assert send(tmp_path, **channel) == ""
        assert [each["Message-ID"] for each in server.received] == [f"<{MESSAGE.id}>"]
    assert untrusted == (
        f"{where}: its certificate is not trusted (self-signed certificate): if it is the right "
        "one, set SSL_CERT_FILE to a file with the certificate of its authority"
    )
    assert misnamed == (
        f"localhost:{port}: its certificate has another name (Hostname mismatch, certificate is "
        "not valid for 'localhost'.): use the name in the certificate"
    )
    assert wrong == (
        f"{where} refused the login of alice: 535 5.7.8 Authentication credentials invalid; "
        f"check user and the first line of {secret}"
    )
    if security == "starttls":
        assert no_tls.startswith(f"{where}: TLS failed (")
        assert no_tls.endswith("): check port and security")
    else:
        assert no_tls == (
            f"{where}: no greeting (Connection unexpectedly closed: timed out): "
            'a port that begins with TLS needs security = "tls"'
        )


def test_silent_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(senders.SendError, match="timed out") as by_mail:
            send(tmp_path, **mail(port), timeout_seconds=0.3)
        with pytest.raises(senders.SendError, match="timed out") as by_web:
            url = f"http://127.0.0.1:{port}/x"
            send(tmp_path, kind="webhook", url=url, timeout_seconds=0.3)
    assert by_mail.value.may_have_it is False, "it had not even greeted"
    assert by_web.value.may_have_it is True


def test_command_gets_the_message_on_stdin(tmp_path: Path) -> None:
    assert send(tmp_path, kind="command", command=("sh", "-c", "cat > $HOME/got")) == ""
    received = json.loads((tmp_path / "got").read_text())
    assert (received["id"], received["items"][0]["body"]) == (MESSAGE.id, "æ\n.\nb")
    assert send(tmp_path, kind="command", command=("true",)) == "", "which reads nothing"
    for argv, message, may_have_it in (
        (("sh", "-c", "echo no >&2; exit 3"), "sh ended with 3 no", False),
        (("sleep", "60"), "sleep had not ended after 0.5 s", True),
        (("/no/such",), "/no/such could not be started: [Errno 2] No such file", False),
    ):
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, kind="command", command=argv, timeout_seconds=0.5)
        assert str(caught.value).startswith(message)
        assert caught.value.may_have_it is may_have_it


def test_characters_that_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(senders.SendError) as caught:
        send(tmp_path, kind="webhook", url=f"http://{'a' * 70}.example/secret")
    # A kind of UnicodeError since Python 3.13.
    assert str(caught.value).replace("UnicodeEncodeError", "UnicodeError") == (
        "an address, a user or a password has characters that cannot be sent (UnicodeError)"
    )


def test_control_characters_are_escaped_for_every_receiver(tmp_path: Path) -> None:
    evil = (
        "E\x1b[\x1b[31m2J\x1b]52;c;eA==\x07\x9b31m\x00\r\u202e\u2028\udc9b <!channel> @channel```"
    )
    shown = (
        r"E\x1b[\x1b[31m2J\x1b]52;c;eA==\x07\x9b31m\x00%s\u202e\u2028\udc9b <!channel> @channel```"
    )
    notice = records.Notice(
        key="end:@7:0",
        kind="failure",
        subject=f"{evil}\nBcc: all@lab",
        body=f"{evil}\n\tb",
        labels=(evil,),
    )
    message = texts.message([notice], "x", "abcd", AT)
    subject, body = shown % " " + " Bcc: all@lab", shown % r"\r" + "\n\tb"

    def sent(**fields: object) -> None:
        channel = config.Channel(**{"timeout_seconds": 2, **fields})  # type: ignore[arg-type]
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        assert senders.send(channel, message, environ) == ""

    with servers.mail_server(servers.free_port()) as smtp:
        sent(**mail(smtp.port))
    (mail_sent,) = smtp.received
    assert mail_sent["Bcc"] is None
    assert mail_sent["Subject"] == f"[orchestrator] {subject}"
    assert mail_sent.get_content_type() == "text/plain"
    assert mail_sent.get_content().replace("\r\n", "\n") == f"{body}\n"
    with servers.web_server(servers.free_port()) as web:
        for form in ("json", "slack", "discord", "mattermost"):
            sent(kind="webhook", url=f"http://127.0.0.1:{web.port}/x", form=form)
    sent(kind="command", command=("sh", "-c", "cat > $HOME/got"))
    as_data, slack, discord, mattermost = (message for _, message in web.received)
    assert as_data == json.loads((tmp_path / "got").read_text())
    (item,) = as_data["items"]
    assert (item["subject"], item["body"], item["labels"]) == (subject, body, [shown % " "])
    # Nobody is called: Slack's own signs are escaped, and the body is code to its end.
    quoted = body.replace("```", "'''")
    signs = f"*{subject}*\n```\n{quoted}\n```".replace("<", "&lt;").replace(">", "&gt;")
    assert slack == {"text": signs}
    content = f"**{subject}**\n```\n{quoted}\n```"
    assert discord == {"content": content, "allowed_mentions": {"parse": []}}
    quiet = subject.replace("@", "@\u200b")
    assert mattermost == {"text": f"**{quiet}**\n```\n{quoted}\n```"}


SECRET = "/services/T0123/B0123/xyzzy-plugh-1234?token=s3cr3t+v%2Flue"
REPEATED = {
    "path": lambda path: f"no hook at {path}",
    "segment": lambda path: f"no hook {path.split('/')[4].partition('?')[0]} here",
    "query": lambda path: f"bad {path.partition('?')[2]}",
    "decoded": lambda path: f"bad token {urllib.parse.unquote_plus(path.rpartition('=')[2])}",
    "encoded": lambda path: f"bad {urllib.parse.quote(path, safe='')}".replace("%2F", "%2f"),
    "json": lambda path: json.dumps({"path": path}).replace("/", "\\/"),
    "base64": lambda path: base64.b64encode(path.encode()).decode(),
    "cut": lambda path: "x" * 240 + path,
    "html": lambda path: f"<p>{html.escape(path + '&a=longenough')}</p>",
}


@pytest.mark.parametrize("form", REPEATED)
def test_secrets_in_replies_are_masked(tmp_path: Path, form: str) -> None:
    with servers.web_server(servers.free_port()) as hook:
        hook.error_text, hook.answers = REPEATED[form], [(404, "")]
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, kind="webhook", url=f"http://127.0.0.1:{hook.port}{SECRET}")
    message = str(caught.value)
    assert message.startswith("http://127.0.0.1/***: 404 Not Found ") and "***" in message[25:]
    for part in ("xyzzy", "plugh", "s3cr3t", "v/lue", "v%2Flue", "v%2flue"):
        assert part not in message
    assert base64.b64encode(SECRET.encode()).decode()[:12] not in message


def test_redirect_is_an_error_without_the_secret(tmp_path: Path) -> None:
    with servers.web_server(servers.free_port()) as hook:
        hook.answers = [(302, "https://xyzzy-plugh-1234.example/y?s3cr3t"), (307, "http://[x/y")]
        messages = []
        for _ in range(2):
            with pytest.raises(senders.SendError) as caught:
                url = f"http://127.0.0.1:{hook.port}/hooks/xyzzy-plugh-1234"
                send(tmp_path, kind="webhook", url=url)
            messages.append(str(caught.value))
    fix = "put the new address into the configuration"
    assert messages == [
        f"http://127.0.0.1/***: redirects to https://***.example/***: {fix}",
        f"http://127.0.0.1/***: redirects to an invalid address: {fix}",
    ]


def test_basic_authentication_from_the_url(tmp_path: Path) -> None:
    with servers.web_server(servers.free_port()) as hook:
        url = f"http://al%40ice:p%3Assw0rd@127.0.0.1:{hook.port}/hook"
        assert send(tmp_path, kind="webhook", url=url) == ""
        word = base64.b64encode(b"al@ice:p:ssw0rd").decode()
        assert hook.authorizations == [f"Basic {word}"]
        hook.answers = [(401, "")]
        hook.error_text = lambda path: (
            f"no: {hook.authorizations[-1]} is al@ice:p:ssw0rd, not p:ssw0rd"
        )
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, kind="webhook", url=url)
    assert str(caught.value) == (
        "http://127.0.0.1/***: 401 Unauthorized no: Basic *** is ***, not ***"
    )


def test_password_is_masked() -> None:
    hide = redaction.mask(["s3cr3t", "\0alice\0s3cr3t"])
    word = base64.b64encode(b"\0alice\0s3cr3t").decode()
    assert hide(f"no: AUTH PLAIN {word}, PASS S3CR3T") == "no: AUTH PLAIN ***==, PASS ***"


@contextlib.contextmanager
def dripping(answer: bytes) -> Iterator[tuple[int, threading.Event]]:
    """A server that sends one byte of its reply every 50 ms; the event: the client disconnected."""
    ended, stop = threading.Event(), threading.Event()

    def drip(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                for byte in itertools.chain(answer, itertools.repeat(ord("x"))):
                    connection.sendall(bytes([byte]))
                    if stop.wait(0.05):
                        return
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1], ended
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 500 no\r\nA: ", b"HTTP/1.1 500 no\r\n\r\n"], ids=len
)
def test_time_limit_of_a_slow_webhook(tmp_path: Path, answer: bytes) -> None:
    with dripping(answer) as (port, ended):
        began = time.monotonic()
        with pytest.raises(senders.SendError) as caught:
            url = f"http://127.0.0.1:{port}/x"
            send(tmp_path, kind="webhook", url=url, timeout_seconds=0.3)
        assert time.monotonic() - began < 30
        # Nothing is left waiting for the rest.
        assert ended.wait(60)
    assert str(caught.value) == "http://127.0.0.1/***: timed out after 0.3 s"
    assert caught.value.may_have_it


def test_time_limit_of_a_slow_mail_server(tmp_path: Path) -> None:
    with dripping(b"220-") as (port, ended):
        began = time.monotonic()
        with pytest.raises(senders.SendError) as caught:
            send(tmp_path, **mail(port), timeout_seconds=0.3)
        assert time.monotonic() - began < 30
        assert ended.wait(60)
    assert str(caught.value) == f"127.0.0.1:{port}: timed out after 0.3 s"
    assert caught.value.may_have_it is False


def test_time_limit_of_a_name_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()

    def slow(*arguments: object, **options: object) -> list[object]:
        asked.set()
        answered.wait(60)
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    channels: list[dict[str, object]] = [
        mail(25),
        {"kind": "webhook", "url": "http://hook.example/x"},
    ]
    for fields in channels:
        with pytest.raises(senders.SendError, match=r"timed out after 0\.3 s") as caught:
            send(tmp_path, **fields, timeout_seconds=0.3)
        assert asked.is_set() and caught.value.may_have_it is False
    answered.set()


def test_nothing_is_sent_after_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, look_up = threading.Event(), socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        answered.wait(60)
        return look_up(*arguments, **options)

    with (
        servers.mail_server(servers.free_port()) as taken,
        servers.web_server(servers.free_port()) as hook,
    ):
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        for fields in (
            mail(taken.port),
            {"kind": "webhook", "url": f"http://127.0.0.1:{hook.port}/x"},
        ):
            with pytest.raises(senders.SendError, match=r"timed out after 0\.3 s") as caught:
                send(tmp_path, **fields, timeout_seconds=0.3)
            assert caught.value.may_have_it is False
        answered.set()
        for thread in threading.enumerate():
            if thread.name == "receiver":
                thread.join(60)
        assert (taken.received, hook.received) == ([], [])
