"""Databases of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from db.sqlite.database import SqliteDatabase

Opened = Callable[..., SqliteDatabase]


@pytest.fixture
def opened() -> Iterator[Opened]:
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(SqliteDatabase(*args, **options))
