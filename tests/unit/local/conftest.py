"""Set-up for all tests of the local machine."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut is not tested here, and a sync takes up to seconds on a busy disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
