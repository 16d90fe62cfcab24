"""Databases of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from db.sqlite.database import SqliteDatabase
from orchestrator.controller.session import stores

Opened = Callable[..., SqliteDatabase]


@pytest.fixture
def opened() -> Iterator[Opened]:
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(SqliteDatabase(*args, **options))


@pytest.fixture
def store(database_url: str) -> Iterator[stores.Store]:
    """An empty database, on SQLite and on PostgreSQL."""
    with stores.Store(database_url) as store:
        yield store
