"""Senders of messages: mail (SMTP), webhook and command. One try each, within a time limit.

Apprise was considered instead: it follows redirects, limits neither the time of a whole call nor
the size of a reply, and sets no Message-ID or Idempotency-Key.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import smtplib
import socket
import ssl
import stat
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orchestrator
from orchestrator import config, errors, files, plugins
from orchestrator.config import channels
from orchestrator.notices import formats, redaction
from orchestrator.notices.records import Message
from orchestrator.processes import process

_T = TypeVar("_T")

#: Limits for a receiver's reply: what is read, and what is shown.
_REPLY_BYTES = 65536
_REPLY_CHARACTERS = 300
#: The time limit of a single read comes before that of the whole call, because it names the step.
_GRACE_SECONDS = 0.25
_SECRET_BYTES = 8192
#: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h).
_NAME_MISMATCHES = (62, 64)


class SendError(errors.OrchestratorError):
    def __init__(self, message: str, *, may_have_it: bool = False) -> None:
        super().__init__(message)
        #: the reply was lost, so that the message may have been accepted
        self.may_have_it = may_have_it


def send(channel: config.Channel, message: Message, environ: Mapping[str, str]) -> str:
    """Send a message to the channel's receiver. Returns a warning or "". Raises SendError."""
    built_in = {"email": _mail, "webhook": _webhook, "command": _command}
    sender = built_in.get(channel.kind or "", _plugin)
    try:
        return sender(channel, formats.readable(message), environ)
    except ValueError as error:
        # Logins are ASCII in smtplib, and host names are IDNA; the error may contain the secret.
        reason = "an address, a user or a password has characters that cannot be sent"
        raise SendError(f"{reason} ({type(error).__name__})") from None


def _mail(channel: config.Channel, message: Message, environ: Mapping[str, str]) -> str:
    assert channel.host is not None and channel.sender is not None, "checked by the configuration"
    mail = formats.mail(message, channel.sender, channel.to)
    password = None if channel.password_file is None else _secret(channel.password_file, environ)
    # AUTH PLAIN sends user and password in one word, which a server may repeat.
    hide = redaction.mask([password, f"\0{channel.user}\0{password}"] if password else [])
    address = f"{channel.host}:{channel.smtp_port}"
    seconds = float(channel.timeout_seconds)
    servers: list[smtplib.SMTP] = []
    is_begun = False

    def deliver(check_time: Callable[[], None]) -> Mapping[str, tuple[int, bytes]]:
        nonlocal is_begun
        # The constructor looks up the name of this host.
        if channel.security == "tls":
            tls = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(timeout=seconds, context=tls)
        else:
            server = smtplib.SMTP(timeout=seconds)
        servers.append(server)
        try:
            _connect(server, channel)
            if channel.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if channel.user is not None and password is not None:
                server.login(channel.user, password)
            check_time()
            is_begun = True
            rejected = server.send_message(mail)
            # The server has accepted the mail, whatever it replies to QUIT.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.quit()
            return rejected
        finally:
            server.close()

    try:
        rejected = _within(seconds, deliver, lambda: [server.sock for server in servers])
    except OSError as error:
        # A reply of the server means that it did not accept the mail.
        is_reply = isinstance(error, smtplib.SMTPResponseException | smtplib.SMTPRecipientsRefused)
        text = _short(f"{address}{hide(_mail_error(error, channel.user))}")
        if isinstance(error, smtplib.SMTPAuthenticationError):
            text += f"; check user and the first line of {channel.password_file}"
        raise SendError(text, may_have_it=is_begun and not is_reply) from None
    # A retry would send the mail again to those who have it.
    return _short(f"{address} rejected {hide(_rejections(rejected))}") if rejected else ""


def _connect(server: smtplib.SMTP, channel: config.Channel) -> None:
    host, port = channel.host or "", channel.smtp_port
    # The name in the server's certificate; connect() alone does not set it.
    server._host = host  # type: ignore[attr-defined]
    try:
        code, reply = server.connect(host, port)
    except smtplib.SMTPServerDisconnected as error:
        if channel.security == "tls":
            raise
        reason = f'no greeting ({error}): a port that begins with TLS needs security = "tls"'
        raise SendError(_short(f"{host}:{port}: {reason}")) from None
    if code != 220:
        raise smtplib.SMTPConnectError(code, reply)


def _within(
    seconds: float,
    work: Callable[[Callable[[], None]], _T],
    sockets: Callable[[], Iterable[socket.socket | None]],
) -> _T:
    """Run `work`, and cut its connections when the time is up; raises TimeoutError.

    It runs in a thread, because a name lookup cannot be interrupted, and because a server that
    sends a byte per second never reaches the time limit of a single read. `work` gets a function
    that raises TimeoutError if the time is up, and calls it when it has connected.
    """
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    is_over = threading.Event()

    def check_time() -> None:
        if is_over.is_set():
            raise TimeoutError

    def run() -> None:
        try:
            future.set_result(work(check_time))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="receiver", daemon=True).start()
    concurrent.futures.wait([future], seconds + _GRACE_SECONDS)
    if future.done():
        return future.result()
    is_over.set()
    for connection in filter(None, sockets()):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    raise TimeoutError(f"timed out after {seconds:g} s")


def _connection_error(problem: object) -> str:
    """Return what went wrong on the way to a receiver; for TLS with the fix."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = problem.verify_message
        if problem.verify_code in _NAME_MISMATCHES:
            return f"its certificate has another name ({reason}): use the name in the certificate"
        return (
            f"its certificate is not trusted ({reason}): if it is the right one, set SSL_CERT_FILE "
            "to a file with the certificate of its authority"
        )
    if isinstance(problem, ssl.SSLError):
        return f"TLS failed ({problem.reason}): check port and security"
    return str(getattr(problem, "strerror", None) or problem or type(problem).__name__)


def _mail_error(error: OSError, user: str | None) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f" rejected {_rejections(error.recipients)}"
    if isinstance(error, smtplib.SMTPResponseException):
        is_login = isinstance(error, smtplib.SMTPAuthenticationError)
        what = f" refused the login of {user}" if is_login else ""
        return f"{what}: {error.smtp_code} {_reply_text(error.smtp_error)}"
    return f": {_connection_error(error)}"


def _rejections(recipients: Mapping[str, tuple[int, bytes]]) -> str:
    items = recipients.items()
    return "; ".join(f"{to}: {code} {_reply_text(reply)}" for to, (code, reply) in items)


def _reply_text(reply: bytes | str) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else reply


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """The handlers of urllib, which also collect the sockets so that connections can be cut."""

    def __init__(self, sockets: list[socket.socket | None], check_time: Callable[[], None]) -> None:
        super().__init__()
        self._sockets, self._check_time = sockets, check_time

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._collecting(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._collecting(http.client.HTTPSConnection), request)

    def _collecting(self, base: type[http.client.HTTPConnection]) -> Any:
        sockets, check_time = self._sockets, self._check_time

        def connect(connection: http.client.HTTPConnection) -> None:
            base.connect(connection)
            sockets.append(connection.sock)
            check_time()

        return type("Connection", (base,), {"connect": connect})


def _webhook(channel: config.Channel, message: Message, environ: Mapping[str, str]) -> str:
    url = channel.url or _secret(channel.url_file or "", environ)
    if reason := channels.url_error(url):
        raise SendError(f"{channel.url_file}: its first line {reason}")
    # The URL itself is a secret.
    shown, hide = channels.shown_url(url), redaction.mask_url(url)
    address, authorization = _without_userinfo(url)
    request = urllib.request.Request(
        address,
        data=formats.webhook_body(channel.form, message),
        method="POST",
        headers={
            "Content-Type": "application/json; charset=utf-8",
            "Idempotency-Key": message.id,
            "User-Agent": f"orchestrator/{orchestrator.__version__}",
            **authorization,
        },
    )
    sockets: list[socket.socket | None] = []
    seconds = float(channel.timeout_seconds)

    def post(check_time: Callable[[], None]) -> None:
        opener = urllib.request.build_opener(_NoRedirect, _Handler(sockets, check_time))
        try:
            opener.open(request, timeout=seconds).close()
        except urllib.error.HTTPError as error:
            with error:
                if 300 <= error.code < 400:
                    target = hide(_shown(error.headers.get("Location") or ""))
                    fix = "put the new address into the configuration"
                    raise SendError(_short(f"{shown}: redirects to {target}: {fix}")) from None
                reply = error.read(_REPLY_BYTES).decode(errors="replace")
            # Masked before it is shortened, so that no half of a secret remains.
            text = f"{shown}: {error.code} {hide(f'{error.reason} {reply}')}"
            raise SendError(_short(text)) from None

    try:
        _within(seconds, post, lambda: sockets)
    except urllib.error.URLError as error:
        # An error of connecting or sending, or of a proxy.
        raise SendError(_short(f"{shown}: {hide(_connection_error(error.reason))}")) from None
    except (OSError, http.client.HTTPException) as error:
        text = f"{shown}: {hide(_connection_error(error))}"
        # Without a connection nothing was sent.
        raise SendError(_short(text), may_have_it=bool(sockets)) from None
    return ""


def _shown(url: str) -> str:
    try:
        return channels.shown_url(url)
    except ValueError:
        return "an invalid address"


def _without_userinfo(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the header that they are sent in."""
    parts = urllib.parse.urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    user, _, password = map(urllib.parse.unquote, userinfo.partition(":"))
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {encoded}"}


def _command(channel: config.Channel, message: Message, environ: Mapping[str, str]) -> str:
    program, home = channel.command[0], environ.get("HOME", "")
    try:
        result = process.run(
            channel.command,
            timeout_seconds=float(channel.timeout_seconds),
            environ=environ,
            # Not the current folder, where `python -m` could find a foreign json.py.
            folder=home if os.path.isdir(home) else "/",
            stdin=formats.as_json(message),
        )
    except process.CommandNotFound as error:
        raise SendError(f"{program} could not be started: {error.__cause__}") from error
    except process.TooMuchOutputError as error:
        raise SendError(str(error), may_have_it=True) from error
    if result.timed_out:
        text = f"{program} had not ended after {channel.timeout_seconds} s"
        raise SendError(text, may_have_it=True)
    if result.returncode:
        raise SendError(_short(f"{program} ended with {result.returncode} {result.stderr}"))
    return ""


def _plugin(channel: config.Channel, message: Message, environ: Mapping[str, str]) -> str:
    try:
        plugin = plugins.load(plugins.NotificationChannel, channel.kind or "")
    except plugins.PluginError as error:
        raise SendError(str(error)) from error
    seconds = float(channel.timeout_seconds)
    content = json.loads(formats.as_json(message))

    def deliver(check_time: Callable[[], None]) -> None:
        plugin.send(content, channel.settings)

    try:
        _within(seconds, deliver, lambda: [])
    except TimeoutError as error:
        raise SendError(f"{channel.kind}: {error}", may_have_it=True) from error
    except (Exception, SystemExit) as error:
        # Its own code: anything may be wrong. It must not end the controller.
        text = f"{channel.kind}: {type(error).__name__}: {error}"
        raise SendError(_short(text), may_have_it=True) from error
    return ""


def _secret(path: str, environ: Mapping[str, str]) -> str:
    """Return the first line of a file that only its owner can read."""
    home = environ.get("HOME") or str(Path.home())
    file = Path(home + path[1:] if path.startswith("~/") else path)
    try:
        with files.open_regular(file) as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise SendError(f"other users can read {path}: `chmod 600 {path}`")
            line = opened.readline(_SECRET_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SendError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not line:
        raise SendError(f"{path}: the first line is empty")
    return line


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REPLY_CHARACTERS else line[: _REPLY_CHARACTERS - 3] + "..."
