"""Which network interfaces NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME mean."""

from __future__ import annotations

from collections.abc import Collection


def unmatched_by_nccl(value: str, interfaces: Collection[str]) -> list[str]:
    """Return the parts of NCCL_SOCKET_IFNAME that no interface matches.

    It has prefixes of names, separated by commas; after "=" whole names. "^" excludes these.
    """
    is_exclusion = value.startswith("^")
    rest = value.removeprefix("^")
    parts = [part for part in rest.removeprefix("=").split(",") if part]

    def matches(name: str, part: str) -> bool:
        return name == part or (not rest.startswith("=") and name.startswith(part))

    if is_exclusion:
        remaining = [name for name in interfaces if not any(matches(name, part) for part in parts)]
        return [] if remaining else [value]
    return [part for part in parts if not any(matches(name, part) for name in interfaces)]


def unmatched_by_gloo(value: str, interfaces: Collection[str]) -> list[str]:
    """Return the names in GLOO_SOCKET_IFNAME, separated by commas, that are no interface."""
    return [name for name in value.split(",") if name not in interfaces]
