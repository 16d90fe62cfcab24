"""What doctor says of this machine."""

from __future__ import annotations

import socket

from orchestrator.controller.setup import site_checks


def test_a_machine_that_does_not_know_localhost() -> None:
    def unknown(name: str, port: None) -> object:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    assert list(site_checks.localhost(unknown)) == [
        site_checks.Check(
            name="localhost",
            outcome="bad",
            found="has no address (Temporary failure in name resolution), "
            "and torchrun --standalone needs one",
            cure="as root: echo '127.0.0.1 localhost' >> /etc/hosts",
        )
    ]
    assert list(site_checks.localhost(lambda name, port: [])) == []
