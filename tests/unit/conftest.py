"""Settings of the unit tier."""

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
