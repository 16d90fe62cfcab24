"""Checks of the hosts for `--host`, `[hosts.NAME]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from orchestrator.config import file_schema
from orchestrator.toml import schema
from orchestrator.toml.key_paths import KeyPath

#: Path of a key, and what is wrong there.
Finding: TypeAlias = tuple[KeyPath, str]


def findings(host: file_schema.Host, at: KeyPath) -> Iterator[Finding]:
    """Yield what is wrong with a host whose types are right."""
    for path, error in schema.value_errors(host):
        yield (*at, *path), error
    if host.address is not None and is_option(host.address):
        yield (*at, "address"), f"must be a host (got {schema.as_toml(host.address)})"
    if not host.remote_command or not host.remote_command[0]:
        yield (*at, "remote_command"), 'must be a list: ["orchestrator", "agent", "--stdio"]'


def is_option(address: str) -> bool:
    """Return whether ssh would take an address for an option, or for nothing."""
    return not address or address.startswith("-")
