"""Receivers of notices for tests: real servers for mail and webhooks."""

from __future__ import annotations

import contextlib
import dataclasses
import email
import email.message
import email.policy
import http.server
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from aiosmtpd import controller as smtp
from aiosmtpd import smtp as smtpd


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclasses.dataclass
class Mail:
    """The mail that a server accepted; `answers`: its next replies instead of 250."""

    port: int
    received: list[email.message.EmailMessage] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        if self.answers:
            return self.answers.pop(0)
        parsed = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.received.append(cast("email.message.EmailMessage", parsed))
        return "250 taken"


@contextlib.contextmanager
def mail_server(
    port: int, *, security: str = "none", certificate: Path | None = None, password: str = ""
) -> Iterator[Mail]:
    """A mail server; with a certificate of itself, its key in the same file, by TLS alone.

    password: of the sender.
    """
    handler = Mail(port=port)
    options: dict[str, Any] = {}
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        by_name = {"tls": "ssl_context", "starttls": "tls_context"}
        # With TLS from the start aiosmtpd does not see that there is any (1.4.6).
        starts = security == "starttls"
        options = {by_name[security]: tls, "require_starttls": starts, "auth_require_tls": starts}
    if password:

        def authenticated(server: object, session: object, *rest: Any) -> smtpd.AuthResult:
            good = rest[-1].password == password.encode()
            return smtpd.AuthResult(success=good, handled=False)

        options |= {"authenticator": authenticated, "auth_required": security == "starttls"}
    server = smtp.Controller(handler, hostname="127.0.0.1", port=port, **options)
    server.start()
    try:
        yield handler
    finally:
        server.stop()


@dataclasses.dataclass
class Hook:
    """What a webhook received; `answers`: the next codes and their targets of redirection."""

    port: int
    received: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    #: the Authorization header of each message
    authorizations: list[str | None] = dataclasses.field(default_factory=list)
    #: the text of an error reply, from the path of the request
    error_text: Callable[[str], str] = lambda path: "no such hook"
    answers: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    #: called when it has a message, before it answers
    before_answer: Callable[[], None] = lambda: None


@contextlib.contextmanager
def web_server(port: int) -> Iterator[Hook]:
    hook = Hook(port=port)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.authorizations.append(self.headers["Authorization"])
            code, to = hook.answers.pop(0) if hook.answers else (200, "")
            if code == 200:
                hook.received.append((self.headers["Idempotency-Key"], json.loads(body)))
            hook.before_answer()
            with contextlib.suppress(OSError):
                self._answer(code, to)

        def _answer(self, code: int, to: str) -> None:
            self.send_response(code)
            if to:
                self.send_header("Location", to)
            self.end_headers()
            self.wfile.write(b"ok" if code == 200 else hook.error_text(self.path).encode())

        def log_message(self, *arguments: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
