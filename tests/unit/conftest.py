"""Settings of the unit tier."""

import ast
from collections.abc import Mapping
from pathlib import Path

import hypothesis
import pytest

for name, max_examples in (("short", 20), ("long", 200)):
    # No deadline: on a busy machine an example may take long.
    hypothesis.settings.register_profile(
        name,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("short")


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    if config.getoption("--long"):
        hypothesis.settings.load_profile("long")


@pytest.fixture(scope="session")
def parsed_modules(checkout: Path) -> Mapping[str, ast.Module]:
    """The modules of orchestrator/ and db/ by path within the checkout."""
    return {
        path.relative_to(checkout).as_posix(): ast.parse(path.read_text())
        for package in ("orchestrator", "db")
        for path in sorted((checkout / package).rglob("*.py"))
    }
