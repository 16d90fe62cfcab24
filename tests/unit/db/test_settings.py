"""Settings of an installation."""

from __future__ import annotations

import pytest

from orchestrator import errors
from orchestrator.controller.session import stores


def test_installation_id_is_made_once(store: stores.Store, database_url: str) -> None:
    with store.reading() as work:
        name = work.settings.installation_id()
    assert len(name) == 4 and name.isascii() and name.isalnum() and name == name.lower()
    with stores.Store(database_url) as again, again.reading() as work:
        assert work.settings.installation_id() == name


def test_settings(store: stores.Store) -> None:
    with store.writing() as work:
        assert work.settings.get("a") is None
        work.settings.put("a", "1")
        work.settings.put("a", "2")
        assert work.settings.get("a") == "2"
    with pytest.raises(errors.DatabaseError), store.reading() as work:
        work.settings.put("a", "3")
