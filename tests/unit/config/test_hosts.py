"""What may be the name or the address of a host."""

from __future__ import annotations

import pytest

from orchestrator.config import hosts


@pytest.mark.parametrize(
    "address", ["mill", "alice@mill.example.org", "ssh://a@mill:22", "fe80::1%eth0"]
)
def test_what_ssh_connects_to(address: str) -> None:
    assert hosts.is_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("", "-oProxyCommand=id", "a@-oX", "-a@mill", "ssh://-oX", "a@", "a b", "a\nb"),
        *("$(id)", "`id`", "a;b", "a\0", "a" * 256),
    ],
)
def test_what_ssh_or_a_shell_would_take_for_something_else(address: str) -> None:
    assert not hosts.is_address(address)


def test_a_name_is_never_a_path() -> None:
    names = ["mill", "alice@mill", "..", "../x", "a/b", "."]
    expected = ["mill", "alice@mill", "%2E.", "%2E.%2Fx", "a%2Fb", "%2E"]
    assert [hosts.file_name(name) for name in names] == expected
