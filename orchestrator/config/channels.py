"""Channels of notices: `[notices.NAME]`, who is told of what, and by which way."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Iterator
from typing import Literal, TypeAlias

from orchestrator.toml import key_paths, schema

#: Path of a key and what is wrong there.
Finding: TypeAlias = tuple[key_paths.KeyPath, str]

#: What can be told. `end` is every end, a failure too; `verdict` every verdict on what a schedule
#: submitted, a regression too; stall, slow and nan_loss are alerts of jobs that run.
KINDS = ("end", "failure", "regression", "verdict", "stall", "slow", "nan_loss", "missed")
#: What is told unless a channel says otherwise: what somebody has to look at.
USUAL = ("failure", "regression", "stall", "missed")
#: By `security`: the ports of RFC 8314 (465), RFC 6409 (587) and RFC 5321 (25).
PORTS = {"starttls": 587, "tls": 465, "none": 25}
FORMS = ("slack", "mattermost", "discord", "json")
#: Keys that one kind of channel alone takes.
_OWN = {
    "email": ("host", "port", "security", "user", "password_file", "sender", "to"),
    "webhook": ("url", "url_file", "form"),
    "command": ("command",),
}
_ADDRESS = re.compile(r"[^\s<>,;:-][^\s<>,;:]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """`[notices.NAME]`: one receiver."""

    #: which of the keys below count
    kind: Literal["email", "webhook", "command"] | None = None
    #: of what it is told
    on: tuple[str, ...] = USUAL
    #: of jobs that have all of these labels alone; none: of all
    labels: tuple[str, ...] = ()
    #: after which a receiver that does not answer is given up until the next time
    timeout_seconds: int = 20
    #: email: server that takes mail
    host: str | None = None
    #: none: that of `security`
    port: int | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    #: readable for its owner alone; its first line is the password
    password_file: str | None = None
    #: the address that mail comes from
    sender: str | None = None
    to: tuple[str, ...] = ()
    #: webhook: its address, or a file whose first line it is: who knows it can write there
    url: str | None = None
    url_file: str | None = None
    form: Literal["slack", "mattermost", "discord", "json"] = "json"
    #: command: argv; it gets the notice on stdin, as JSON
    command: tuple[str, ...] = ()

    @property
    def receiver(self) -> str:
        """Who is told, in words, without what nobody else may know."""
        if self.kind == "email":
            return f"{', '.join(self.to)} through {self.host}:{self.smtp_port}"
        if self.kind == "webhook":
            return f"{self.form} at {shown_url(self.url)}" if self.url else f"{self.url_file}"
        return self.command[0] if self.command else ""

    @property
    def smtp_port(self) -> int:
        return self.port or PORTS[self.security]

    def wants(self, kind: str) -> bool:
        """Tell whether the channel is told of notices of this kind."""
        wider = {"failure": "end", "regression": "verdict"}.get(kind)
        return kind in self.on or wider in self.on


def shown_url(url: str | None) -> str:
    """Return a webhook's address without what lets others write there."""
    parts = urllib.parse.urlsplit(url or "")
    return f"{parts.scheme}://{parts.hostname or ''}/***"


def url_error(url: str) -> str:
    """Return what is wrong with a webhook's address; "": nothing."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        return "must be an address that begins with https:// or http://"
    return ""


def findings(channel: Channel, at: key_paths.KeyPath) -> Iterator[Finding]:
    """Give what is wrong with a channel whose types are right."""
    if channel.kind is None:
        yield at, 'needs kind = "email", "webhook" or "command"'
        return
    for kind, keys in _OWN.items():
        for key in keys if kind != channel.kind else ():
            if getattr(channel, key) != getattr(Channel(), key):
                yield (*at, key), f'belongs to kind = "{kind}"'
    for place, word in enumerate(channel.on):
        if word not in KINDS:
            near = schema.did_you_mean(word, KINDS)
            advice = f'Did you mean "{near}"?' if near else f"Known: {', '.join(KINDS)}."
            yield (*at, "on", place), f"unknown kind {schema.as_toml(word)}. {advice}"
    if not 1 <= channel.timeout_seconds <= 300:
        told = f"must be from 1 to 300 (got {channel.timeout_seconds})"
        yield (*at, "timeout_seconds"), told
    for key in ("password_file", "url_file"):
        path = getattr(channel, key)
        if path is not None and not path.startswith(("/", "~/")):
            yield (*at, key), f"must begin with / or ~/ (got {schema.as_toml(path)})"
    yield from {"email": _email, "webhook": _webhook, "command": _command}[channel.kind](
        channel, at
    )


def _email(channel: Channel, at: key_paths.KeyPath) -> Iterator[Finding]:
    for key in ("host", "sender"):
        if not getattr(channel, key):
            yield at, f"needs {key}"
    if not channel.to:
        yield at, "needs to"
    for place, address in enumerate(channel.to):
        if not _ADDRESS.fullmatch(address):
            yield (*at, "to", place), f"must be an address (got {schema.as_toml(address)})"
    if channel.sender and not _ADDRESS.fullmatch(channel.sender):
        yield (*at, "sender"), f"must be an address (got {schema.as_toml(channel.sender)})"
    if channel.port is not None and not 1 <= channel.port <= 65535:
        yield (*at, "port"), f"must be from 1 to 65535 (got {channel.port})"
    if (channel.user is None) != (channel.password_file is None):
        yield at, "needs user and password_file, or neither"
    if channel.user is not None and channel.security == "none":
        yield (*at, "security"), "would send the password in the clear: use starttls or tls"


def _webhook(channel: Channel, at: key_paths.KeyPath) -> Iterator[Finding]:
    if (channel.url is None) == (channel.url_file is None):
        yield at, "needs url or url_file, and not both"
    if channel.url is not None and (misfit := url_error(channel.url)):
        yield (*at, "url"), misfit


def _command(channel: Channel, at: key_paths.KeyPath) -> Iterator[Finding]:
    if not channel.command or not channel.command[0]:
        yield at, 'needs command, a list: ["/path/of/program", "argument"]'
