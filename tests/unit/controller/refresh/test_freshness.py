"""Which process may query Slurm; the claim of a killed process is released."""

from __future__ import annotations

import datetime
import os
import socket
import subprocess
import sys

import pytest

from orchestrator.controller.refresh import freshness
from orchestrator.controller.session import stores

NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("host", "is_gone", "may"),
    [
        (socket.gethostname(), True, True),
        (socket.gethostname(), False, False),
        # Of a process of another host nothing is known.
        ("elsewhere", True, False),
    ],
)
def test_claim_of_a_process_killed_during_its_query(
    database_url: str, host: str, is_gone: bool, may: bool
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    holder = f"{host}:{ended.pid if is_gone else os.getpid()}.7"
    with stores.Store(database_url) as store, store.writing() as work:
        assert work.refreshes.claim("lab", NOW, 0, holder)
        freshness.drop_dead_claim(work, "lab")
        assert work.refreshes.claim("lab", NOW, 0, "other:1") is may
