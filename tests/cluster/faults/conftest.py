"""Fixtures of the fault matrix: a site with counted Slurm calls, and the check after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import site as sites
from tests.cluster.faults import rows


@pytest.fixture
def row(site: sites.Site) -> Iterator[rows.Row]:
    """A fresh site of alice's behind the wrappers; the invariants are checked after the test."""
    with site.lab.faults() as seen:
        made = rows.Row(site=site.with_env(**seen.env), seen=seen)
        yield made
        made.check()
