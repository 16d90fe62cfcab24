"""Checks of the hosts for `--host`, `[hosts.NAME]`."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from typing import TypeAlias

from orchestrator.config import file_schema
from orchestrator.toml import schema
from orchestrator.toml.key_paths import KeyPath

#: Path of a key, and what is wrong there.
Finding: TypeAlias = tuple[KeyPath, str]
#: As OpenSSH refuses them since 9.6 (ssh.c, valid_hostname), and what is longer than a name.
_FORBIDDEN = re.compile(r"[\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]|.{256}", re.DOTALL)


def findings(host: file_schema.Host, at: KeyPath) -> Iterator[Finding]:
    """Yield what is wrong with a host whose types are right."""
    for path, error in schema.value_errors(host):
        yield (*at, *path), error
    if host.address is not None and not is_address(host.address):
        yield (*at, "address"), f"must be a host (got {schema.as_toml(host.address)})"
    if host.address is None and not is_address(str(at[-1])):
        yield at, "needs `address`: ssh accepts no such name"
    if not host.remote_command or not host.remote_command[0]:
        yield (*at, "remote_command"), 'must be a list: ["orchestrator", "agent", "--stdio"]'


def is_address(address: str) -> bool:
    """Return whether ssh can take an address for nothing but HOST, USER@HOST or a URL.

    Not an option, not several words, and nothing that a shell would read: ProxyCommand may give it
    to one.
    """
    parts = address.removeprefix("ssh://").split("@")
    is_option = any(part.startswith("-") for part in (address, *parts))
    return bool(parts[-1]) and not is_option and _FORBIDDEN.search(address) is None


def file_name(name: str) -> str:
    """Return a name for files of a host: without slashes, and never hidden or a folder's."""
    text = urllib.parse.quote(name, safe="@")
    return f"%2E{text[1:]}" if text.startswith(".") else text
