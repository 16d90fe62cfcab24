"""Channels of notices, `[notices.NAME]`: receivers of notifications."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

from orchestrator import jobs
from orchestrator.toml import schema
from orchestrator.toml.key_paths import KeyPath

#: Path of a key, and what is wrong there.
Finding: TypeAlias = tuple[KeyPath, str]

#: `end` includes failures; `verdict` is every result of a schedule's comparison, `regression` only
#: regressions; stall, slow, straggler and nan_loss are alerts of running jobs.
KINDS = (
    "end",
    "failure",
    "regression",
    "verdict",
    "stall",
    "slow",
    "straggler",
    "nan_loss",
    "missed",
)
DEFAULT_KINDS = ("failure", "regression", "stall", "missed")
#: By `security`: the ports of RFC 8314 (465), RFC 6409 (587) and RFC 5321 (25).
PORTS = {"starttls": 587, "tls": 465, "none": 25}
#: Keys of one kind of channel only.
_KEYS_OF_KIND = {
    "email": ("host", "port", "security", "user", "password_file", "sender", "to"),
    "webhook": ("url", "url_file", "form"),
    "command": ("command",),
}
_REQUIRED = {"email": ("host", "sender", "to"), "webhook": (), "command": ()}
_ADDRESS = re.compile(r"[^\s<>,;:-][^\s<>,;:]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """`[notices.NAME]`: one receiver."""

    #: decides which of the keys below apply; or a plugin of orchestrator.notification_channels;
    #: required
    kind: Literal["email", "webhook", "command"] | jobs.PluginName | None = None
    #: kinds of notifications that are sent
    on: tuple[str, ...] = DEFAULT_KINDS
    #: labels that a job must have, all of them, to be reported
    labels: tuple[str, ...] = ()
    #: a receiver that does not answer within so many seconds is tried again later
    timeout_seconds: int = 20
    #: email: host of the mail server
    host: str | None = None
    #: email: port of the mail server; default: 587 (starttls), 465 (tls) or 25 (none)
    port: int | None = None
    #: email: encryption of the connection
    security: Literal["starttls", "tls", "none"] = "starttls"
    #: email: user name for the login
    user: str | None = None
    #: email: file, readable only by its owner, whose first line is the password
    password_file: str | None = None
    #: email: address of the sender
    sender: str | None = None
    #: email: addresses of the receivers
    to: tuple[str, ...] = ()
    #: webhook: its URL; whoever knows it can post
    url: str | None = None
    #: webhook: file whose first line is the URL, instead of url
    url_file: str | None = None
    #: webhook: form of the message
    form: Literal["slack", "mattermost", "discord", "json"] = "json"
    #: command: program and arguments; it gets the notification on stdin, as JSON
    command: tuple[str, ...] = ()
    #: plugin: its own keys
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_plugin(self) -> bool:
        return self.kind is not None and self.kind not in _KEYS_OF_KIND

    @property
    def receiver(self) -> str:
        """The receiver in words, without secrets."""
        if self.kind == "email":
            return f"{', '.join(self.to)} through {self.host}:{self.smtp_port}"
        if self.kind == "webhook":
            return f"{self.form} at {shown_url(self.url)}" if self.url else f"{self.url_file}"
        if self.is_plugin:
            return f"plugin {self.kind}"
        return self.command[0] if self.command else ""

    @property
    def smtp_port(self) -> int:
        return self.port or PORTS[self.security]

    def wants(self, kind: str) -> bool:
        """Return whether the channel gets notifications of this kind."""
        wider = {"failure": "end", "regression": "verdict"}.get(kind)
        return kind in self.on or wider in self.on


def shown_url(url: str | None) -> str:
    """Return a webhook's URL without its secret part."""
    parts = urllib.parse.urlsplit(url or "")
    return f"{parts.scheme}://{parts.hostname or ''}/***"


def url_error(url: str) -> str:
    """Return what is wrong with a webhook's URL; "" if nothing is."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if is_valid and url.isascii() and url.isprintable() and " " not in url:
        return ""
    return "must be a URL that begins with https:// or http://"


def findings(channel: Channel, at: KeyPath) -> Iterator[Finding]:
    """Yield what is wrong with a channel whose types are right."""
    if channel.kind is None:
        yield at, 'needs kind = "email", "webhook" or "command"'
        return
    if channel.is_plugin:
        yield from _plugin_findings(channel.kind, at)
    elif channel.settings:
        yield (*at, "settings"), "belongs to a plugin"
    for kind, keys in _KEYS_OF_KIND.items():
        for key in keys if kind != channel.kind else ():
            if getattr(channel, key) != getattr(Channel(), key):
                yield (*at, key), f'belongs to kind = "{kind}"'
    for index, kind in enumerate(channel.on):
        if kind not in KINDS:
            advice = schema.advice(kind, KINDS)
            yield (*at, "on", index), f"unknown kind {schema.as_toml(kind)}. {advice}"
    for path, error in schema.value_errors(channel):
        yield (*at, *path), error
    for key in ("password_file", "url_file"):
        file = getattr(channel, key)
        if file is not None and not file.startswith(("/", "~/")):
            yield (*at, key), f"must begin with / or ~/ (got {schema.as_toml(file)})"
    for key in _REQUIRED.get(channel.kind, ()):
        if not getattr(channel, key):
            yield at, f"needs {key}"
    addresses: dict[KeyPath, str] = {
        (*at, "to", index): address for index, address in enumerate(channel.to)
    }
    if channel.sender:
        addresses[(*at, "sender")] = channel.sender
    for path, address in addresses.items():
        if not _ADDRESS.fullmatch(address):
            yield path, f"must be an address (got {schema.as_toml(address)})"
    if (channel.user is None) != (channel.password_file is None):
        yield at, "needs user and password_file, or neither"
    if channel.user is not None and channel.security == "none":
        yield (*at, "security"), "would send the password unencrypted: use starttls or tls"
    if channel.kind == "webhook" and (channel.url is None) == (channel.url_file is None):
        yield at, "needs either url or url_file"
    if channel.kind == "webhook" and channel.url is not None and (error := url_error(channel.url)):
        yield (*at, "url"), error
    if channel.kind == "command" and not (channel.command and channel.command[0]):
        yield at, 'needs command, a list: ["/path/of/program", "argument"]'


def _plugin_findings(name: str, at: KeyPath) -> Iterator[Finding]:
    # A message loads the plugin: a command that sends none need not.
    from orchestrator import plugins

    if name not in plugins.installed(plugins.NotificationChannel):
        message = plugins.unknown(plugins.NotificationChannel, name, tuple(_KEYS_OF_KIND))
        yield (*at, "kind"), f"{message}. Built in: {', '.join(_KEYS_OF_KIND)}"
