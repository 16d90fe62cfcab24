"""Receivers: what they are given, and what is said of what goes wrong."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that nobody trusts by itself, with its key."""
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
    given = mail(port, security=security, user="alice", password_file=str(secret))
    where = f"127.0.0.1:{port}"

    def refused(**more: object) -> str:
        with pytest.raises(receivers.ReceiverError) as caught:
            send(tmp_path, **{**given, **more})
        # So it stays in the outbox, and is sent again.
        assert caught.value.may_have_it is False
        return str(caught.value)

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with servers.mail_server(
        port, security=security, certificate=certificate, password="r1ght"
    ) as server:
        untrusted = refused()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        misnamed = refused(host="localhost")
        wrong = refused()
        other = {"starttls": "tls", "tls": "starttls"}[security]
        no_tls = refused(security=other, timeout_seconds=1)
        assert server.got == []
        secret.write_text("r1ght\n")
        assert send(tmp_path, **given) == ""
        assert [one["Message-ID"] for one in server.got] == [f"<{MESSAGE.id}>"]
    assert untrusted == (
        f"{where}: its certificate is not trusted here (self-signed certificate): where it is the "
        "right one, name the file with its authority's certificate in SSL_CERT_FILE"
    )
    assert misnamed == (
        f"localhost:{port}: its certificate is of another name (Hostname mismatch, certificate is "
        "not valid for 'localhost'.): call it as the certificate does"
    )
    assert wrong == (
        f"{where} refused the login of alice: 535 5.7.8 Authentication credentials invalid; "
        f"look at user and at the first line of {secret}"
    )
    if security == "starttls":
        assert no_tls.startswith(f"{where}: no TLS with it (")
        assert no_tls.endswith("): are port and security those of this server?")
    else:
        assert no_tls == (
            f"{where}: no greeting came (Connection unexpectedly closed: timed out): "
            'a port that begins with TLS takes security = "tls"'
        )


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
    # A kind of UnicodeError since Python 3.13.
    assert str(caught.value).replace("UnicodeEncodeError", "UnicodeError") == (
        "an address, a user or a password has characters that cannot be sent (UnicodeError)"
    )


def test_what_acts_on_a_reader_is_escaped_for_every_receiver(tmp_path: Path) -> None:
    evil = (
        "E\x1b[\x1b[31m2J\x1b]52;c;eA==\x07\x9b31m\x00\r\u202e\u2028\udc9b <!channel> @channel```"
    )
    shown = (
        r"E\x1b[\x1b[31m2J\x1b]52;c;eA==\x07\x9b31m\x00%s\u202e\u2028\udc9b <!channel> @channel```"
    )
    notice = notices.Notice(
        key="end:@7:0",
        kind="failure",
        subject=f"{evil}\nBcc: all@lab",
        body=f"{evil}\n\tb",
        labels=(evil,),
    )
    message = notices.message([notice], "x", "abcd", AT)
    subject, body = shown % " " + " Bcc: all@lab", shown % r"\r" + "\n\tb"

    def sent(**fields: object) -> None:
        channel = config.Channel(**{"timeout_seconds": 2, **fields})  # type: ignore[arg-type]
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        assert receivers.send(channel, message, environ) == ""

    with servers.mail_server(servers.free_port()) as smtp:
        sent(**mail(smtp.port))
    (got,) = smtp.got
    assert got["Bcc"] is None
    assert got["Subject"] == f"[orchestrator] {subject}"
    assert got.get_content_type() == "text/plain"
    assert got.get_content().replace("\r\n", "\n") == f"{body}\n"
    with servers.web_server(servers.free_port()) as web:
        for form in ("json", "slack", "discord", "mattermost"):
            sent(kind="webhook", url=f"http://127.0.0.1:{web.port}/x", form=form)
    sent(kind="command", command=("sh", "-c", "cat > $HOME/got"))
    as_data, slack, discord, mattermost = (told for _, told in web.got)
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
