"""Checks of this machine by doctor."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

from orchestrator import config
from orchestrator.controller.service import health
from orchestrator.controller.setup import site_checks
from orchestrator.slurm.client import Client


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


def test_a_late_controller_and_a_wrong_fabric_are_reported_without_the_database(
    tmp_path: Path,
) -> None:
    configured = {"ORCHESTRATOR_STATE_DIR": str(tmp_path), "ORCHESTRATOR_SCHEDULER": "local"}
    configured["ORCHESTRATOR_FABRIC"] = "olivi"
    configuration = config.load({"HOME": str(tmp_path), **configured}, tmp_path)
    then = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
    newest = health.Pass(
        command="serve",
        host="login1",
        pid=7,
        since=then,
        last_pass_at=then,
        took_seconds=0.5,
        steps={},
        next_pass_at=then,
        failing_since=None,
    )
    health.store(configuration, newest)
    (tmp_path / "orchestrator.db").write_text("no database" * 100)
    checks = {check.name: check for check in site_checks.examine(configuration, Client(environ={}))}
    assert checks["database"].outcome == "bad"
    assert checks["controller"].outcome == "warning"
    assert checks["controller"].found == health.last_pass_message(newest)
    assert checks["fabric of profile"].outcome == "bad"
    assert checks["fabric of profile"].found.startswith('no fabric "olivi". Did you mean "olivia"?')
