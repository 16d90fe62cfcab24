"""A message goes out: mail by SMTP, a webhook, a command. One function each; nothing is retried."""

from __future__ import annotations

import base64
import contextlib
import http.client
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
from orchestrator import config, errors, files, notices
from orchestrator.config import channels
from orchestrator.notices import forms, redaction
from orchestrator.slurm import process

_T = TypeVar("_T")

#: Of what a receiver answers, so much is read ...
_ANSWER_BYTES = 65536
#: ... and so much is kept.
_ANSWER_CHARACTERS = 300
#: A time-out of one read says what was waited for: it comes before that of the whole.
_LATER_SECONDS = 0.25
_ADDRESS_BYTES = 8192
#: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h).
_OTHER_NAME = (62, 64)


class ReceiverError(errors.OrchestratorError):
    """A receiver did not take a message."""

    def __init__(self, message: str, *, may_have_it: bool = False) -> None:
        super().__init__(message)
        #: the answer got lost, so that it may have been taken all the same
        self.may_have_it = may_have_it


def send(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    """Give the message to the channel's receiver; ReceiverError where it is not taken.

    Returns what is to be noted all the same; "": nothing.
    """
    kinds = {"email": _mail, "webhook": _webhook, "command": _command}
    try:
        return kinds[channel.kind or ""](channel, forms.readable(message), environ)
    except ValueError as exc:
        # smtplib's logins are ASCII, names of hosts are IDNA; what it says may hold the secret.
        told = "an address, a user or a password has characters that cannot be sent"
        raise ReceiverError(f"{told} ({type(exc).__name__})") from None


def _mail(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    assert channel.host is not None and channel.sender is not None, "checked when it was read"
    mail = forms.mail(message, channel.sender, channel.to)
    password = None if channel.password_file is None else _secret(channel.password_file, environ)
    # AUTH PLAIN sends both in one word, and a server may repeat what it was sent.
    hide = redaction.masking([password, f"\0{channel.user}\0{password}"] if password else [])
    where = f"{channel.host}:{channel.smtp_port}"
    seconds = float(channel.timeout_seconds)
    servers: list[smtplib.SMTP] = []
    begun = False

    def deliver(proceed: Callable[[], None]) -> Mapping[str, tuple[int, bytes]]:
        nonlocal begun
        # Its constructor looks up the name of this host.
        server = (
            smtplib.SMTP_SSL(timeout=seconds, context=ssl.create_default_context())
            if channel.security == "tls"
            else smtplib.SMTP(timeout=seconds)
        )
        servers.append(server)
        try:
            _connect(server, channel)
            if channel.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if channel.user is not None and password is not None:
                server.login(channel.user, password)
            proceed()
            begun = True
            refused = server.send_message(mail)
            # From here on the server has it, whatever it answers to QUIT.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.quit()
            return refused
        finally:
            server.close()

    try:
        refused = _within(seconds, deliver, lambda: [one.sock for one in servers])
    except smtplib.SMTPAuthenticationError as exc:
        told = f"{where} refused the login of {channel.user}: {exc.smtp_code} "
        cure = f"look at user and at the first line of {channel.password_file}"
        raise ReceiverError(f"{_short(told + hide(_text(exc.smtp_error)))}; {cure}") from None
    except smtplib.SMTPResponseException as exc:
        told = f"{where}: {exc.smtp_code} {hide(_text(exc.smtp_error))}"
        raise ReceiverError(_short(told)) from None
    except smtplib.SMTPRecipientsRefused as exc:
        told = f"{where} refused {hide(_refusals(exc.recipients))}"
        raise ReceiverError(_short(told)) from None
    except OSError as exc:
        told = f"{where}: {hide(_why(exc))}"
        raise ReceiverError(_short(told), may_have_it=begun) from None
    # The others have it, and would get it again.
    return _short(f"{where} refused {hide(_refusals(refused))}") if refused else ""


def _connect(server: smtplib.SMTP, channel: config.Channel) -> None:
    host, port = channel.host or "", channel.smtp_port
    # The name that its certificate must have; connect() alone does not set it.
    server._host = host  # type: ignore[attr-defined]
    try:
        code, said = server.connect(host, port)
    except smtplib.SMTPServerDisconnected as exc:
        if channel.security == "tls":
            raise
        # Where TLS comes first, each waits for the other to begin.
        told = f'no greeting came ({exc}): a port that begins with TLS takes security = "tls"'
        raise ReceiverError(_short(f"{host}:{port}: {told}")) from None
    if code != 220:
        raise smtplib.SMTPConnectError(code, said)


def _within(
    seconds: float,
    work: Callable[[Callable[[], None]], _T],
    sockets: Callable[[], Iterable[socket.socket | None]],
) -> _T:
    """Do some work, and cut its connections when the time is up; raises TimeoutError.

    In a thread, for a name that is looked up cannot be interrupted, and a server that sends a byte
    a second keeps any time-out of a single read from coming. The thread ends with its connections.
    The work calls what it is given once it is connected, before it sends anything: that raises
    TimeoutError where the time was up before there was a connection to cut.
    """
    outcome: list[Callable[[], _T]] = []
    is_over = threading.Event()

    def proceed() -> None:
        if is_over.is_set():
            raise TimeoutError

    def run() -> None:
        try:
            done = work(proceed)
        except BaseException as exc:
            error = exc

            def fail() -> _T:
                raise error

            outcome.append(fail)
        else:
            outcome.append(lambda: done)

    thread = threading.Thread(target=run, name="receiver", daemon=True)
    thread.start()
    thread.join(seconds + _LATER_SECONDS)
    if not outcome:
        is_over.set()
        for connection in sockets():
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        raise TimeoutError(f"timed out after {seconds:g} s")
    return outcome[0]()


def _why(problem: object) -> str:
    """Return what went wrong on the way to a receiver; of TLS with what helps."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        said = problem.verify_message
        if problem.verify_code in _OTHER_NAME:
            return f"its certificate is of another name ({said}): call it as the certificate does"
        return (
            f"its certificate is not trusted here ({said}): where it is the right one, name the "
            "file with its authority's certificate in SSL_CERT_FILE"
        )
    if isinstance(problem, ssl.SSLError):
        return f"no TLS with it ({problem.reason}): are port and security those of this server?"
    return str(getattr(problem, "strerror", None) or problem or type(problem).__name__)


def _refusals(recipients: Mapping[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{to}: {code} {_text(said)}" for to, (code, said) in recipients.items())


def _text(answer: bytes | str) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error as any other: nothing is made of where it points to."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Http(urllib.request.HTTPHandler):
    """urllib's handler, whose connections can be cut: they are kept in `sockets`."""

    def __init__(self, sockets: list[socket.socket | None], proceed: Callable[[], None]) -> None:
        super().__init__()
        self._sockets, self._proceed = sockets, proceed

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        sockets, proceed = self._sockets, self._proceed

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)
                proceed()

        return self.do_open(Connection, request)


class _Https(urllib.request.HTTPSHandler):
    """The same with TLS."""

    def __init__(self, sockets: list[socket.socket | None], proceed: Callable[[], None]) -> None:
        super().__init__()
        self._sockets, self._proceed = sockets, proceed

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        sockets, proceed = self._sockets, self._proceed

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                sockets.append(self.sock)
                proceed()

        return self.do_open(Connection, request)


def _webhook(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    url = channel.url or _secret(channel.url_file or "", environ)
    if misfit := channels.url_error(url):
        raise ReceiverError(f"{channel.url_file}: its first line {misfit}")
    # The address itself is a secret: it stands in no message.
    shown, hide = channels.shown_url(url), redaction.of_url(url)
    address, headers = _request_of(url)
    request = urllib.request.Request(
        address,
        data=forms.payload(channel.form, message),
        method="POST",
        headers={
            "Content-Type": "application/json; charset=utf-8",
            "Idempotency-Key": message.id,
            "User-Agent": f"orchestrator/{orchestrator.__version__}",
            **headers,
        },
    )
    sockets: list[socket.socket | None] = []
    seconds = float(channel.timeout_seconds)

    def post(proceed: Callable[[], None]) -> tuple[int, str]:
        """Return the code of what is no success, and what was said; 0: it was taken."""
        handlers = (_Http(sockets, proceed), _Https(sockets, proceed))
        opener = urllib.request.build_opener(_NoRedirect, *handlers)
        try:
            with opener.open(request, timeout=seconds):
                return 0, ""
        except urllib.error.HTTPError as exc:
            with exc:
                if 300 <= exc.code < 400:
                    return exc.code, exc.headers.get("Location") or ""
                # Masked before it is cut: half a secret is none that could be found.
                said = exc.read(_ANSWER_BYTES).decode(errors="replace")
                return exc.code, f"{exc.reason} {said}"

    try:
        code, said = _within(seconds, post, lambda: sockets)
    except urllib.error.URLError as exc:
        # While connecting or sending; a proxy's refusal is one too.
        raise ReceiverError(_short(f"{shown}: {hide(_why(exc.reason))}")) from None
    except (OSError, http.client.HTTPException) as exc:
        # Without a connection nothing was sent.
        told = f"{shown}: {hide(_why(exc))}"
        raise ReceiverError(_short(told), may_have_it=bool(sockets)) from None
    if 300 <= code < 400:
        told = f"moved to {_shown_target(said, hide)}: write its new address into the configuration"
        raise ReceiverError(_short(f"{shown}: {told}"))
    if code:
        raise ReceiverError(_short(f"{shown}: {code} {hide(said)}"))
    return ""


def _request_of(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and the header that they are sent in."""
    parts = urllib.parse.urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    user, _, password = userinfo.partition(":")
    plain = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}"
    encoded = base64.b64encode(plain.encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {encoded}"}


def _shown_target(location: str, hide: Callable[[str], str]) -> str:
    try:
        return hide(channels.shown_url(location))
    except ValueError:
        return "no address"


def _command(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    try:
        answer = process.run(
            channel.command,
            timeout_seconds=float(channel.timeout_seconds),
            environ=environ,
            # Not where we were called: that may be a clone with a json.py for `python -m`.
            folder=home if os.path.isdir(home := environ.get("HOME", "")) else "/",
            stdin=forms.as_json(message),
        )
    except process.CommandNotFound as exc:
        raise ReceiverError(f"{channel.command[0]} could not be started: {exc.__cause__}") from exc
    except process.TooMuchOutputError as exc:
        raise ReceiverError(str(exc), may_have_it=True) from exc
    if answer.timed_out:
        told = f"{channel.command[0]} had not ended after {channel.timeout_seconds} s"
        raise ReceiverError(told, may_have_it=True)
    if answer.returncode:
        told = f"{channel.command[0]} ended with {answer.returncode} {answer.stderr}"
        raise ReceiverError(_short(told))
    return ""


def _secret(path: str, environ: Mapping[str, str]) -> str:
    """Return the first line of a file that nobody but its owner can read."""
    home = environ.get("HOME") or str(Path.home())
    file = Path(home + path[1:] if path.startswith("~/") else path)
    try:
        with files.open_regular(file) as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ReceiverError(f"{path} can be read by others: `chmod 600 {path}`")
            line = opened.readline(_ADDRESS_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ReceiverError(f"{path}: {getattr(exc, 'strerror', None) or exc}") from exc
    if not line:
        raise ReceiverError(f"{path}: its first line is empty")
    return line


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _ANSWER_CHARACTERS else line[: _ANSWER_CHARACTERS - 3] + "..."
