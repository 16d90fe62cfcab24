from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flow.scripts import machine as machine_module


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    with machine_module.killed_with_pytest():
        yield


@pytest.fixture
def machine(tmp_path: Path) -> machine_module.Machine:
    """A machine that plays a Slurm allocation."""
    return machine_module.make(tmp_path)
