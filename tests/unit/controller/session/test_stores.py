"""Selection of the database by URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import errors as our_errors
from orchestrator.controller.session import stores

URLS = "Write sqlite:////PATH or postgresql://USER@HOST/DATABASE."


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "'nonsense' is not a database URL."),
        ("ann:secret@db", "The value of `database` is not a database URL."),
        ("sqlite://", "The database sqlite:// cannot be used."),
        ("mysql://ann:secret@db/x", "The database mysql://ann:***@db/x cannot be used."),
        (
            "postgresql+asyncpg://ann:secret@db/x?password=secret",
            "The database postgresql+asyncpg://ann:***@db/x cannot be used.",
        ),
        ("postgresql://ann:sec:ret/x", "The value of `database` is not a database URL."),
    ],
)
def test_urls(url: str, message: str) -> None:
    with pytest.raises(our_errors.DatabaseError) as refusal:
        stores.Store(url)
    assert str(refusal.value) == f"{message} {URLS}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:se@cret@db/x", "postgresql://ann:***@db/x"),
        ("postgresql://an/n:secret@db/x", "postgresql://an/n:***@db/x"),
    ],
)
def test_a_password_that_is_not_encoded_is_no_host(url: str, shown: str) -> None:
    with pytest.raises(our_errors.DatabaseError) as refusal:
        stores.Store(url)
    assert str(refusal.value) == (
        f"{shown} has an @ or a / in its user, its password or an option: "
        "write them as %40 and %2F."
    )


def test_url_names_a_file(tmp_path: Path) -> None:
    assert stores.Store(f"sqlite:///{tmp_path}/x.db").shown_name == str(tmp_path / "x.db")
