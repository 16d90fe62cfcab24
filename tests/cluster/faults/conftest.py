"""What each row of the fault matrix gets: a site whose calls are counted, and the check after."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.cluster import site as sites
from tests.cluster.faults import rows

HERE = pathlib.Path(__file__).parent


# Before tests/conftest.py leaves out what is slow.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the rows with --long only, until the whole matrix has its short form."""
    for item in items:
        if item.path.is_relative_to(HERE) and "row" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def row(site: sites.Site) -> Iterator[rows.Row]:
    """A fresh site of alice's behind the wrappers; the invariants are checked after the test."""
    with site.lab.faults() as seen:
        made = rows.Row(site=site.with_env(**seen.env), seen=seen)
        yield made
        made.check()
