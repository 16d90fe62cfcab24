"""A message goes out: mail by SMTP, a webhook, a command. One function each; nothing is retried."""

from __future__ import annotations

import contextlib
import http.client
import os
import smtplib
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator import config, errors, files, notices, slurm
from orchestrator.config import channels
from orchestrator.notices import forms

#: Of what a receiver answers, so much is kept.
_ANSWER_CHARACTERS = 300
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
        return kinds[channel.kind or ""](channel, message, environ)
    except ValueError as exc:
        # smtplib's logins are ASCII, names of hosts are IDNA; what it says may hold the secret.
        told = "an address, a user or a password has characters that cannot be sent"
        raise ReceiverError(f"{told} ({type(exc).__name__})") from None


def _mail(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    assert channel.host is not None and channel.sender is not None, "checked when it was read"
    mail = forms.mail(message, channel.sender, channel.to)
    password = None if channel.password_file is None else _secret(channel.password_file, environ)
    where = f"{channel.host}:{channel.smtp_port}"
    begun = False
    try:
        server = _connected(channel)
        try:
            if channel.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            if channel.user is not None and password is not None:
                server.login(channel.user, password)
            begun = True
            refused = server.send_message(mail)
            # From here on the server has it, whatever it answers to QUIT.
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.quit()
        finally:
            server.close()
    except smtplib.SMTPAuthenticationError as exc:
        told = f"{where} refused the login of {channel.user}: {exc.smtp_code} "
        cure = f"look at user and at the first line of {channel.password_file}"
        raise ReceiverError(f"{_short(told + _text(exc.smtp_error))}; {cure}") from exc
    except smtplib.SMTPResponseException as exc:
        told = f"{where}: {exc.smtp_code} {_text(exc.smtp_error)}"
        raise ReceiverError(_short(told)) from exc
    except smtplib.SMTPRecipientsRefused as exc:
        raise ReceiverError(_short(f"{where} refused {_refusals(exc.recipients)}")) from exc
    except OSError as exc:
        raise ReceiverError(_short(f"{where}: {_why(exc)}"), may_have_it=begun) from exc
    # The others have it, and would get it again.
    return _short(f"{where} refused {_refusals(refused)}") if refused else ""


def _connected(channel: config.Channel) -> smtplib.SMTP:
    host, port, seconds = channel.host or "", channel.smtp_port, float(channel.timeout_seconds)
    if channel.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(host, port, timeout=seconds, context=context)
    try:
        return smtplib.SMTP(host, port, timeout=seconds)
    except smtplib.SMTPServerDisconnected as exc:
        # Where TLS comes first, each waits for the other to begin.
        told = f'no greeting came ({exc}): a port that begins with TLS takes security = "tls"'
        raise ReceiverError(_short(f"{host}:{port}: {told}")) from exc


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
    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


def _webhook(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    url = channel.url or _secret(channel.url_file or "", environ)
    if misfit := channels.url_misfit(url):
        raise ReceiverError(f"{channel.url_file}: its first line {misfit}")
    # The address itself is a secret: it stands in no message.
    shown = channels.shown_url(url)
    request = urllib.request.Request(
        url,
        data=forms.payload(channel.form, message),
        method="POST",
        headers={
            "Content-Type": "application/json; charset=utf-8",
            "Idempotency-Key": message.id,
            "User-Agent": f"orchestrator/{orchestrator.__version__}",
        },
    )
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=channel.timeout_seconds):
            return ""
    except urllib.error.HTTPError as exc:
        with exc:
            if 300 <= exc.code < 400:
                to = channels.shown_url(exc.headers.get("Location"))
                raise ReceiverError(
                    f"{shown}: moved to {to}: write its new address into the configuration"
                ) from None
            said = exc.read(_ANSWER_CHARACTERS).decode(errors="replace")
            raise ReceiverError(_short(f"{shown}: {exc.code} {exc.reason} {said}")) from None
    except urllib.error.URLError as exc:
        # While connecting or sending; a proxy's refusal is one too.
        raise ReceiverError(_short(f"{shown}: {_why(exc.reason)}")) from None
    except (OSError, http.client.HTTPException) as exc:
        raise ReceiverError(_short(f"{shown}: {_why(exc)}"), may_have_it=True) from None


def _command(channel: config.Channel, message: notices.Message, environ: Mapping[str, str]) -> str:
    try:
        answer = slurm.run(
            channel.command,
            timeout_seconds=float(channel.timeout_seconds),
            environ=environ,
            stdin=forms.as_json(message),
        )
    except slurm.CommandNotFound as exc:
        raise ReceiverError(f"{channel.command[0]} could not be started: {exc.__cause__}") from exc
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
