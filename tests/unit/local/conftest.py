"""Set-up for all tests of the local machine."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync: power cuts are not tested, and a sync can take seconds on a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
